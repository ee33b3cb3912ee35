"""Panel evaluations of a run's current weights between iterations, on the run's own engine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from agents.computing import compute
from agents.errors import WeightsError
from agents.players.scripted import is_scripted
from agents.players.servers import Endpoints
from arena.build import Parts
from arena.config.experiment import Experiment
from arena.errors import ConfigError, PlayError, StoreError
from arena.evaluate import specs
from arena.evaluate.best_play import BestPlay
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import make_game
from arena.evaluate.panel import PanelPlan, check_members, resolve_panel_game
from arena.evaluate.panel_figures import compute_figures
from arena.panels.settings import RUN_WEIGHTS, Panel
from arena.parts.paths import anchor_paths
from arena.play.contenders import ModelContender
from arena.play.settings import GameSpec
from arena.play.watchers import Watcher
from arena.store.evaluations import read_evaluations
from arena.store.files import CONFIG
from arena.store.run import RunFolder


class Examination:
    """Evaluation of a run's weights against a panel of opponents, before learning, at intervals, and at the end."""

    def __init__(self, run: RunFolder, experiment: Experiment) -> None:
        """Prepare to evaluate a run whose `experiment` has a panel that `check_panel` accepted."""
        self.run, self.experiment = run, experiment
        self._plan: PanelPlan | None = None
        self._best: BestPlay | None = None
        self._done: set[int | None] | None = None
        """Iterations that were evaluated, or whose evaluation failed."""

    async def is_due(self, k: int, parts: Parts) -> bool:
        """Return True if the weights after iteration `k` are due for evaluation and were not evaluated yet.

        They are due if none were evaluated yet, every `evaluate.every` iterations, and after the run's last one.
        """
        assert self.experiment.evaluate is not None
        if self._done is None:
            await self._begin(parts)
        assert self._done is not None
        every = self.experiment.evaluate.every
        is_scheduled = not self._done or k == self.experiment.iterations or bool(every and k % every == 0)
        return is_scheduled and k not in self._done

    async def examine(self, k: int, parts: Parts, watcher: Watcher) -> dict[str, float]:
        """Play the panel, append the evaluation to the run's folder, and return its figures for the row of metrics.

        If the panel cannot be played (a server is down), notify the watcher and return {}; the run continues.
        """
        plan = self._plan
        assert plan is not None and self._done is not None
        self._done.add(k)
        watcher.phase(k, f"panel {plan.panel.panel}" if k else f"panel {plan.panel.panel}: before it learns")
        if self._best is None:
            self._best = await compute(plan.best_play)
        try:
            evaluation = await plan.play(
                _make_counter(watcher, plan.matches), self.experiment.play.in_flight, self._best, k
            )
        except PlayError as error:
            watcher.note(f"iteration {k} was not evaluated against the panel {plan.panel.panel}: {error}")
            return {}
        for reason, times in evaluation.failed.items():
            watcher.note(f"panel {plan.panel.panel}, iteration {k}: {times} failed and played again: {reason}")
        self.run.evaluations.append(evaluation.model_dump(mode="json"))
        return compute_figures(evaluation)

    async def _begin(self, parts: Parts) -> None:
        """Load the panel's members, and read the evaluations from before an interruption."""
        self._plan = await _plan_panel(self.experiment, parts)
        before = [e for e in read_evaluations(self.run.path) if e.key == self._plan.key]
        self._done = {evaluation.iteration for evaluation in before}
        if before:
            self._best = BestPlay.of(before[-1])


def make_examination(run: RunFolder, experiment: Experiment) -> Examination | None:
    """Return the evaluation of a run during training; None if its experiment names no panel."""
    return Examination(run, experiment) if experiment.evaluate and experiment.evaluate.panel else None


async def _plan_panel(experiment: Experiment, parts: Parts) -> PanelPlan:
    panel = get_panel(experiment)
    assert panel is not None
    trained = {name: parts.policies[name] for name in parts.policies.trainers}
    name = ", ".join(trained)
    cast = Casting(name=name, policies=trained, experiment=experiment, instructions=parts.play.read_instructions)
    contender = ModelContender(name, parts.engine, cast)
    members = await specs.ContenderLoader(endpoints=Endpoints(experiment.servers())).load(
        *panel.members, games=[panel.game.name]
    )
    plan = PanelPlan(contender, panel, resolve_panel_game(panel, experiment), members)
    plan.check()
    return plan


def _make_counter(watcher: Watcher, total: int) -> Callable[[], None]:
    """Return a callback that reports one more of `total` matches as done."""
    numbers = count(1)
    return lambda: watcher.progress(next(numbers), total)


# -- before anything is played -----------------------------------------------------------------------------


def get_panel(experiment: Experiment) -> Panel | None:
    """Return the experiment's panel, with `evaluate.deals` as its number of deals if set; None without a panel."""
    spec = experiment.evaluate
    if spec is None or spec.panel is None:
        return None
    return spec.panel.model_copy(update={"deals": spec.deals}) if spec.deals else spec.panel


def check_panel(experiment: Experiment) -> None:
    """Check that the experiment's panel can evaluate it, without loading weights.

    Raises ConfigError, StoreError or WeightsError, whose message starts with `evaluate.panel`.
    """
    if (panel := get_panel(experiment)) is None:
        return
    try:
        game = resolve_panel_game(panel, experiment)
        check_members(panel, game, _find_learner_seats(experiment, game))
    except (ConfigError, StoreError, WeightsError) as error:
        raise type(error)(f"evaluate.panel: {error}") from None


def _find_learner_seats(experiment: Experiment, game: GameSpec) -> list[str]:
    """Return the seats at which the learners are evaluated: those that they have in the run, else all.

    Raises ConfigError if several learners could take the seats, or if the run trains none.
    """
    seats = list(make_game(game).possible_agents)
    tables = [table for table in experiment.all_tables() if table.game.name == game.name]
    own = [seat for seat in seats if any(experiment.trained(t.seats[seat].policy) for t in tables if seat in t.seats)]
    trained = [name for name, policy in experiment.policies.items() if policy.train]
    if not own and len(trained) > 1:
        raise ConfigError(
            f"who plays {game.name}? This run trains {' and '.join(trained)}: leave the panel out and evaluate one of "
            f"them afterwards, arena eval runs/latest:{trained[0]} --panel NAME"
        )
    if not trained:
        raise ConfigError("the run trains no policy, so there is nothing to evaluate")
    return own or seats


def with_fixed_panel(experiment: Experiment) -> Experiment:
    """Return the experiment with a panel that cannot change during the run: absolute paths and pinned iterations."""
    spec = experiment.evaluate
    if spec is None or spec.panel is None:
        return experiment
    spec = anchor_paths(spec)
    panel = spec.panel.model_copy(update={"members": [_pin_iteration(member) for member in spec.panel.members]})
    return experiment.model_copy(update={"evaluate": spec.model_copy(update={"panel": panel})})


def _pin_iteration(member: str) -> str:
    """Return a member `runs/other` as `runs/other@12`, its newest iteration, because that run may still be learning."""
    match = RUN_WEIGHTS.fullmatch(member)
    if match is None or is_scripted(member) or match["iteration"] or not Path(match["path"], CONFIG).is_file():
        return member
    policy = f":{match['policy']}" if match["policy"] else ""
    return f"{match['path']}@{specs.find_newest_iteration(Path(match['path']))}{policy}"
