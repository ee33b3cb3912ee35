"""Room in the worlds of the studies: what random acts and the world's own oracle reach, without any model.

    python benchmarks/worlds.py            # a minute
    python benchmarks/worlds.py --quick    # ten matches each: does it still work?

Of every recipe whose study is kept: at the seats of its policies sits `random`, then `oracle` where the game has one;
all other seats are as in the recipe. Of OpenSpiel's games what a best response earns is computed. Deals and options are
those that its figure is of: an evaluation's, or practice. What imitation and the best run reach is in the studies' own
records (`docs/claims/worlds.md` has all of it). Writes results/worlds.json.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Set
from pathlib import Path
from statistics import fmean
from typing import Any

from open_spiel.python.algorithms.best_response import BestResponsePolicy
from open_spiel.python.policy import UniformRandomPolicy

import games
from agents.errors import ScriptedPolicyError
from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import recipe_layer
from arena.config.study import EVALUATED, PANEL
from arena.doctor import environment
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.play.settings import TableSpec
from arena.records import MatchRecord, Seating
from arena.statistics import mean_ci
from games.abilities import SpielRules
from games.contracts import MatchId

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("random", "oracle")
MATCHES = 400
FIRST_DEAL = 10**6
"""Seed of the first deal."""


def studies() -> dict[str, str]:
    """The figure of every kept study by its recipe; not those of panels, whose members are the measure."""
    kept = (json.loads(file.read_text()) for file in sorted(RESULTS.glob("study-*.json")))
    figures = {study["name"]: study["study"]["figure"] for study in kept}
    return {recipe: figure for recipe, figure in figures.items() if not figure.startswith(PANEL)}


def tables(experiment: Experiment, figure: str) -> list[TableSpec]:
    """The tables that the figure is of, with the options under which it is taken."""
    found = experiment.all_tables()
    asked = experiment.evaluate
    if figure.startswith(EVALUATED) and asked and asked.games:
        return [found[0].model_copy(update={"game": asked.games[0]})]
    named = [table for table in found if figure.split(".")[1:2] == [table.game.name]]
    return named or found


def reached(
    experiment: Experiment, table: TableSpec, contender: str, figure: str, matches: int
) -> list[dict[str, Any]]:
    """The figure and the contender's own turns in each match; ScriptedPolicyError where it cannot play."""
    game = games.make(table.game.name, **table.game.options)
    others = {seat: held.policy for seat, held in table.seats.items() if not experiment.trained(held.policy)}
    holders = {seat: others.get(seat, contender) for seat in game.possible_agents}
    own = holders.keys() - others.keys()
    plans = [
        MatchPlan(
            MatchId(0, i), table.game.name, table.game.options, FIRST_DEAL + i,
            {seat: Seating("", name, 0, False, "brain") for seat, name in holders.items()},
        )
        for i in range(matches)
    ]  # fmt: skip

    async def play(plan: MatchPlan) -> MatchRecord:
        game = games.make(plan.game, **plan.options)
        players = {
            seat: ScriptedPlayer(make_scripted(holders[seat], 8 * plan.seed + i, game))
            for i, seat in enumerate(game.possible_agents)
        }
        return await play_match(plan, game, players, Limits())

    records = asyncio.run(play_all(plans, play, lambda record: None, in_flight=1))
    return [
        {"figure": _value(record, figure, table, own), "turns": sum(turn.seat in own for turn in record.turns)}
        for record in records
    ]


def _value(record: MatchRecord, figure: str, table: TableSpec, own: Set[str]) -> float:
    """The study's figure of a match: of its report, or what the seats in question were paid."""
    name = figure.removeprefix(EVALUATED)
    if name in record.report:
        return float(record.report[name])
    if name.startswith("payoff."):
        return record.payoffs[name.removeprefix("payoff.")]
    seats = [seat for seat in own if table.seats[seat].role == name.rpartition(".")[2]]
    return fmean(record.payoffs[seat] for seat in seats)


def measured(recipe: str, figure: str, matches: int) -> dict[str, Any]:
    """One world: who reaches what there."""
    experiment = compose([recipe_layer(recipe)])
    own = tables(experiment, figure)
    found: dict[str, Any] = {"figure": figure, "games": [table.game.model_dump() for table in own]}
    for contender in CONTENDERS:
        try:
            rows = [row for table in own for row in reached(experiment, table, contender, figure, matches // len(own))]
        except ScriptedPolicyError as error:
            found[contender] = {"left out": str(error)}
            continue
        values = [row["figure"] for row in rows]
        found[contender] = {"mean": mean_ci(values)._asdict(), "turns": fmean(row["turns"] for row in rows)}
    if all(isinstance(games.make(table.game.name, **table.game.options), SpielRules) for table in own):
        found["best play"] = fmean(best_play(experiment, table) for table in own)
    return found


def best_play(experiment: Experiment, table: TableSpec) -> float:
    """Payoff of a best response to players who take any legal act, at the one seat that learns, by OpenSpiel."""
    game = games.make(table.game.name, **table.game.options)
    assert isinstance(game, SpielRules) and {held.policy for held in table.seats.values()} - {*experiment.policies} == {
        "random"
    }
    (seat,) = (
        game.possible_agents.index(seat) for seat, held in table.seats.items() if experiment.trained(held.policy)
    )
    response = BestResponsePolicy(game.spiel, seat, UniformRandomPolicy(game.spiel))
    return float(response.value(game.spiel.new_initial_state()))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures worth a glance."""
    for recipe, world in found.items():
        told = (
            f"{contender} {world[contender]['mean']['estimate']:.2f} ({world[contender]['turns']:.1f} turns)"
            for contender in CONTENDERS
            if "mean" in world[contender]
        )
        yield f"{recipe:24} {world['figure']:24} {', '.join(told)}"


def main() -> None:
    """Measure and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = {recipe: measured(recipe, figure, 10 if quick else MATCHES) for recipe, figure in studies().items()}
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/worlds.py", *sys.argv[1:]]),
        "machine": environment(),
    }
    result |= {"matches": MATCHES, "first deal": FIRST_DEAL, "worlds": found}
    (RESULTS / f"worlds{'-quick' if quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
