"""Held-out evaluation: a run's first and last weights on games that may differ from those of training."""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agents.errors import ScriptedPolicyError
from agents.players.scripted import check_scripted, is_scripted
from agents.players.servers import Endpoints
from agents.weights import resolve
from arena.config.experiment import Experiment
from arena.config.saved_config import load_experiment
from arena.credit.rewards.reward_model import find_compatible_weights
from arena.errors import ConfigError
from arena.evaluate import specs
from arena.evaluate.evaluation import (
    Result,
    check_lineups,
    compute_change,
    count_matches,
    evaluate,
    interval_to_json,
    make_game,
    with_split,
)
from arena.evaluate.examination import check_panel
from arena.evaluate.rating import Rater
from arena.panels.settings import EvaluateSpec
from arena.play.contenders import Contender
from arena.play.settings import GameSpec
from arena.store.files import write_atomic
from games.names import nearest

FILE = "evaluation.json"


class HeldOutResults(NamedTuple):
    """Results of an evaluation before and after learning, on the same deals: one result per game and opponent."""

    before: list[Result]
    after: list[Result]

    def to_json(self) -> dict[str, Any]:
        """Return `before`, `results` (after learning) and `changes` (after - before) of every figure as JSON."""
        return {
            "before": [result.to_json() for result in self.before],
            "results": [result.to_json() for result in self.after],
            "changes": changes_to_json(self.before, self.after),
        }


def changes_to_json(before: Sequence[Result], after: Sequence[Result]) -> list[dict[str, Any]]:
    """Return, for each game and opponent, the mean change of every common figure with its interval, as JSON values."""
    return [
        {
            "game": new.game.name,
            "against": new.against or None,
            "figures": {
                name: interval_to_json(compute_change(old, new, name)) for name in new.figures if name in old.figures
            },
        }
        for old, new in zip(before, after, strict=True)
    ]


def check_spec(experiment: Experiment) -> None:
    """Check games, opponents and trained policies of the experiment's `evaluate` section, without loading weights.

    Raises ConfigError, StoreError or WeightsError.
    """
    if (spec := experiment.evaluate) is None:
        return
    check_panel(experiment)
    trained = [name for name, policy in experiment.policies.items() if policy.train]
    if spec.policy is not None and spec.policy not in trained:
        known = f"{nearest(spec.policy, trained)} (it trains {', '.join(trained)})"
        raise ConfigError(f"evaluate.policy: this run trains no '{spec.policy}'{known}")
    for n, game in enumerate(spec.held_out):
        tables = [table for table in experiment.all_tables() if table.game.name == game.name]
        learner_seats = {seat for table in tables for seat, holder in table.seats.items() if holder.policy in trained}
        if not learner_seats.issuperset(make_game(game).possible_agents) and len(trained) > 1 and spec.policy is None:
            raise ConfigError(
                f"evaluate.games.{n}: who plays {game.name}? This run trains {' and '.join(trained)}: name one as "
                f"evaluate.policy={trained[0]}"
            )
        _check_opponents(spec, n, game, learner_seats)
    for name in spec.against if spec.games else ():
        specs.read_spec(name)
    if spec.reward_model is not None:
        try:
            find_compatible_weights(spec.reward_model, [resolve(experiment.policies[name].model) for name in trained])
        except ValueError as error:
            raise ConfigError(f"evaluate.reward_model: {error}") from None


def _check_opponents(spec: EvaluateSpec, n: int, game: GameSpec, learner_seats: Collection[str]) -> None:
    """Raise ConfigError for a scripted opponent that cannot play one of its seats."""
    example = make_game(game)
    seats = list(example.possible_agents)
    opponent_seats = [seat for seat in seats if any(seat != own for own in learner_seats or seats)]
    for name in filter(is_scripted, () if example.cooperative else spec.against):
        try:
            for seat in opponent_seats:
                check_scripted(name, example, seat)
        except ScriptedPolicyError as error:
            raise ConfigError(f"evaluate.against: {error} (evaluate.games.{n})") from None


async def evaluate_held_out(
    run: Path, spec: EvaluateSpec, seed: int, begin: Callable[[int], Callable[[], None]] = lambda total: lambda: None
) -> HeldOutResults:
    """Evaluate a run's first and last weights by `spec`, write evaluation.json to its folder and return the results.

    `begin` is called with the number of matches and returns a callback for each finished match.
    """
    loader = specs.ContenderLoader(endpoints=Endpoints(load_experiment(run).servers()), summaries=spec.summaries)
    weights = f"{run}:{spec.policy}" if spec.policy else str(run)
    last, first, *others = await loader.load(
        weights, specs.name_first_weights(weights), *spec.against, games=[game.name for game in spec.held_out]
    )
    games = [with_split(game) for game in spec.held_out]
    work = [
        (contender, game, _choose_opponents(contender, game, others)) for contender in (first, last) for game in games
    ]
    for contender, game, opponents in work:
        check_lineups(contender, opponents, game)
    rate = Rater(spec.reward_model, [contender for contender, *_ in work]) if spec.reward_model is not None else None
    step = begin(sum(count_matches(contender, opponents, game, spec.matches) for contender, game, opponents in work))
    results_by_pair = [
        await evaluate(contender, opponents, game, spec.matches, seed, step, rate)
        for contender, game, opponents in work
    ]
    half = len(games)
    results = HeldOutResults(
        [r for row in results_by_pair[:half] for r in row], [r for row in results_by_pair[half:] for r in row]
    )
    write_atomic(run / FILE, json.dumps({"seed": seed, **results.to_json()}, indent=1) + "\n")
    return results


def _choose_opponents(contender: Contender, game: GameSpec, others: list[Contender]) -> list[Contender]:
    """Return the opponents in a game: none if it has one seat, the contender itself in cooperative games."""
    example = make_game(game)
    if len(example.possible_agents) == 1:
        return []
    return [contender] if example.cooperative or not others else others
