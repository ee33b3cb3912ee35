"""Room in the worlds of the studies: what random acts and the world's own oracle reach, without any model.

    python benchmarks/worlds.py            # two minutes
    python benchmarks/worlds.py --quick    # ten matches each: does it still work?

Of every kept study: at the seats of its policies sits `random`, then `oracle` where the game has one; all other seats,
games and options are those of its record, an evaluation's where its figure is one. Of figures that no script has, such
as a panel's or tokens, only turns are kept. Of OpenSpiel's games what a best response to random play earns is computed.
Writes results/worlds.json.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any

from open_spiel.python.algorithms.best_response import BestResponsePolicy
from open_spiel.python.policy import UniformRandomPolicy

from arena.config.study import EVALUATED, parse_evaluated_figure
from arena.doctor import describe_environment
from arena.errors import ConfigError
from arena.evaluate.evaluation import make_game, play, require_playable
from arena.evaluate.played import MatchOutcome
from arena.play.contenders import ScriptedContender
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from games.abilities import SpielRules

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("random", "oracle")
MATCHES = 400
SEED = 0


@dataclass(frozen=True)
class World:
    """A table of a study: its game, and who sits there beside the policies that learn."""

    game: GameSpec
    others: dict[str, str]
    """Scripted policies by seat."""
    paid: list[str]
    """Seats whose payoff is the figure, where no report has it."""

    @property
    def own(self) -> list[str]:
        """Seats of the policies that learn."""
        return [seat for seat in make_game(self.game).possible_agents if seat not in self.others]


def worlds(study: dict[str, Any]) -> list[World]:
    """The tables that a kept study's figure is of."""
    experiment, figure = last_stage(study["experiment"]), study["study"]["figure"]
    if figure.startswith(EVALUATED):
        game = experiment["evaluate"]["games"][parse_evaluated_figure(figure)[0] - 1]
        return [World(GameSpec.model_validate(game), scripted_seats(experiment, game["name"]), [])]
    found = []
    for table in experiment.get("tables") or [experiment]:
        seats = table["seats"].items()
        others = {seat: held["policy"] for seat, held in seats if held["policy"] not in experiment["policies"]}
        parts = figure.split(".")
        paid = [s for s, held in seats if s not in others and parts[-1] in (s, held.get("role"))]
        found.append(World(GameSpec.model_validate(table["game"]), others, paid))
    named = [world for world in found if world.game.name in figure.split(".")]
    return named or found


def last_stage(experiment: dict[str, Any]) -> dict[str, Any]:
    """The experiment; of a pipeline the settings that its stages share, with those of its last one laid over them."""
    own = [part for part in (experiment.get("stages") or [{}])[-1].values() if isinstance(part, dict)]
    return experiment | {name: setting for part in own for name, setting in part.items()}


def scripted_seats(experiment: dict[str, Any], game: str) -> dict[str, str]:
    """Scripted policies by seat at the experiment's table of that game."""
    tables = experiment.get("tables") or [experiment]
    seats: dict[str, Any] = next((table["seats"] for table in tables if table["game"]["name"] == game), {})
    held = {seat: player["policy"] for seat, player in seats.items() if "policy" in player}
    return {seat: policy for seat, policy in held.items() if policy not in experiment["policies"]}


def value(match: MatchOutcome, figure: str, world: World) -> float | None:
    """The study's figure of a match: of its report, or what the seats in question were paid; else None."""
    name = parse_evaluated_figure(figure)[1].removeprefix(f"{world.game.name}.")  # where there are several games
    if name in match.report:
        return float(match.report[name])
    return fmean(match.payoffs[seat] for seat in world.paid) if world.paid else None


def reached(own: list[World], contender: str, figure: str, matches: int) -> dict[str, Any]:
    """The figure with its interval, and the contender's turns a seat in a match; ConfigError where it cannot play."""
    values, turns = [], []
    for world in own:
        seats = make_game(world.game).possible_agents
        lineup = {seat: ScriptedContender(world.others.get(seat, contender)) for seat in seats}
        require_playable([ScriptedContender(contender)], world.game)
        played, _ = asyncio.run(play([lineup], world.game, matches // len(own), SEED))
        whole = [match for match in played[0] if match]
        values += [worth for match in whole if (worth := value(match, figure, world)) is not None]
        turns += [fmean(match.acts[seat] for seat in world.own) for match in whole]
    return ({"mean": mean_ci(values)._asdict()} if values else {}) | {"turns": fmean(turns)}


def best_play(world: World) -> float | None:
    """Payoff of a best response to random play at the one seat that learns; None but in OpenSpiel's games."""
    game = make_game(world.game)
    if not isinstance(game, SpielRules) or {*world.others.values()} != {"random"} or len(world.own) > 1:
        return None
    response = BestResponsePolicy(game.spiel, game.possible_agents.index(world.own[0]), UniformRandomPolicy(game.spiel))
    return float(response.value(game.spiel.new_initial_state()))


def measured(study: dict[str, Any], matches: int) -> dict[str, Any]:
    """One study's world: who reaches what there."""
    figure, own = study["study"]["figure"], worlds(study)
    found: dict[str, Any] = {"figure": figure, "games": [world.game.model_dump() for world in own]}
    for contender in CONTENDERS:
        try:
            found[contender] = reached(own, contender, figure, matches)
        except ConfigError as error:
            found[contender] = {"left out": str(error)}
    best = [worth for world in own if (worth := best_play(world)) is not None]
    return found | ({"best play": fmean(best)} if len(best) == len(own) else {})


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures worth a glance."""
    for name, world in found.items():
        told = (
            f"{player} {world[player].get('mean', {}).get('estimate', nan):.2f} ({world[player]['turns']:.1f} turns)"
            for player in CONTENDERS
            if "turns" in world[player]
        )
        yield f"{name:24} {world['figure']:28} {', '.join(told)}"


def main() -> None:
    """Measure and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    kept = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("study-*.json"))]
    matches = 10 if quick else MATCHES
    found = {study["name"]: measured(study, matches) for study in kept}
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/worlds.py", *sys.argv[1:]])}
    result |= {"machine": describe_environment(), "matches": matches, "seed": SEED, "worlds": found}
    (RESULTS / f"worlds{'-quick' if quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
