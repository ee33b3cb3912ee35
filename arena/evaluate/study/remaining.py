"""Time that runs still need, roughly: by what their parts have taken so far, or by the recipe's `minutes`.

What comes once in a run (its start, imitation, the panel before it learns, an evaluation at its end) is kept apart from
iterations, and these from the panel between them: a study that has imitated for a minute is not a minute per iteration
slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import NamedTuple

from arena.config.arms import with_arm
from arena.config.experiment import Experiment
from arena.errors import StoreError
from arena.evaluate.held_out import FILE as EVALUATION
from arena.evaluate.study.plan import Plan, Run
from arena.evaluate.study.runs import Runner, seen
from arena.store.contents import METRICS
from arena.store.evaluations import read_evaluations
from arena.store.reader import RunReader, read_metrics

LATEST = 20
"""Iterations whose mean tells how long one takes: early ones may be longer or shorter."""
PARTS = ("play", "learn", "commit")
"""Seconds of an iteration; those of its panel are apart."""


class Cost(NamedTuple):
    """Seconds of a run, taken apart."""

    once: float | None
    """Seconds that were no iteration; None for a run that was interrupted, where nobody knows them."""
    iteration: float
    panel: float
    ended: bool

    def of(self, experiment: Experiment, done: int = 0) -> float:
        """Return the seconds of all iterations and panels that come after `done` iterations."""
        return (experiment.iterations - done) * self.iteration + panels(experiment, done) * self.panel


def panels(experiment: Experiment, done: int = 0) -> int:
    """Return how often a panel judges after `done` iterations are over; what it judges before the first is left out."""
    if experiment.evaluate is None or experiment.evaluate.panel is None:
        return 0
    every, last = experiment.evaluate.every, experiment.iterations
    return sum(k == last or bool(every and k % every == 0) for k in range(done + 1, last + 1))


def cost_of(run: Path) -> Cost | None:
    """Return what a run has taken so far; None before its first iteration is over, or where its files do not say."""
    try:
        rows, judged = read_metrics(run / METRICS), read_evaluations(run)
        if not rows:
            return None
        spent = [sum(row["seconds"].get(part, 0.0) for part in PARTS) for row in rows]
        panel = judged[-1].seconds if judged else 0.0
        between = sum(row["seconds"].get("panel", 0.0) for row in rows)
        evaluated = (run / EVALUATION).exists()
        commands = RunReader(run).environment()["commands"]
        began = datetime.fromisoformat(commands[0]["time"]).timestamp()
        wall = (run / (EVALUATION if evaluated else METRICS)).stat().st_mtime - began
        once = max(0.0, wall - sum(spent) - between) if len(commands) == 1 else None
        return Cost(once, fmean(spent[-LATEST:]), panel, evaluated)
    except (OSError, StoreError, ValueError, LookupError, TypeError, AttributeError):
        return None  # an estimate is no reason to end


class Estimate:
    """Estimates of how long the runs of a plan take; those of runs that have ended are read once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._experiments = {arm: with_arm(plan.experiment, arm) for arm in plan.arms}
        self._ended: dict[Run, Cost] = {}

    def left(self, runner: Runner) -> float | None:
        """Return about how many seconds it takes until all runs have ended; None where nothing tells yet."""
        waiting = [*runner.running, *runner.due]
        costs = self._costs([run for run in self.plan.runs if run not in runner.due], runner.running)
        rest = [self._rest(run, runner.since.get(run), costs) for run in waiting]
        known = [seconds for seconds in rest if seconds is not None]
        if len(known) < len(rest) or not known:
            return None
        return max(sum(known) / min(runner.jobs, len(known)), *known)

    def whole(self, arm: str, experiment: Experiment) -> float | None:
        """Return the seconds that a run of an arm takes with these settings, by those that have ended."""
        return _whole(experiment, _like(arm, self._costs(self.plan.runs, [])))

    def _costs(self, runs: Sequence[Run], running: Sequence[Run]) -> dict[Run, Cost]:
        found = {run: self._ended.get(run) or cost_of(run.path) for run in runs if run.path.exists()}
        known = {run: cost for run, cost in found.items() if cost}
        self._ended |= {run: cost for run, cost in known.items() if run not in running}
        return known

    def _rest(self, run: Run, since: float | None, costs: dict[Run, Cost]) -> float | None:
        """Seconds until a run ends: by its iterations once it has some, else by what a whole one takes."""
        experiment = self._experiments[run.arm]
        if own := costs.get(run):
            return own.of(experiment, min(seen(run), experiment.iterations))
        like, minutes = _like(run.arm, costs), self.plan.spec.minutes
        whole = _whole(experiment, like, 60 * minutes if minutes else None)
        passed = monotonic() - since if since else 0.0
        least = fmean(cost.of(experiment) for cost in like) if like else 0.0  # no iteration is over yet
        return None if whole is None else max(least, whole - passed)


def _whole(experiment: Experiment, like: Sequence[Cost], stated: float | None = None) -> float | None:
    """Seconds of a whole run, by runs like it; what comes once by those that ended, else by the seconds stated."""
    if not like:
        return stated
    iterations = fmean(cost.of(experiment) for cost in like)
    once = [cost.once for cost in like if cost.once is not None]
    return iterations + fmean(once) if once else max(iterations, stated or 0.0)


def _like(arm: str, costs: dict[Run, Cost]) -> list[Cost]:
    """Costs of the arm's runs, else of all; of those that are over where some are, as evaluations come last."""
    found = [cost for run, cost in costs.items() if run.arm == arm] or list(costs.values())
    return [cost for cost in found if cost.ended] or found
