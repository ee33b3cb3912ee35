"""Room for improvement in the studies' worlds: the figures of random play and of scripted oracles, without any model.

    python benchmarks/worlds.py            # two minutes
    python benchmarks/worlds.py desk mgpo  # these studies only; keep the other figures
    python benchmarks/worlds.py --quick    # ten matches each: does it still work?

For every saved study, `random` and then `oracle`, if the game has one, plays the seats of the learning policies. All
other seats, games and options are those of the study's record, or of its evaluation if the figure comes from an
evaluation. For figures that scripts lack, such as a panel's or tokens, only turns are reported. For OpenSpiel's games,
the payoff of a best response to random play is computed. Writes results/worlds.json.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from statistics import fmean
from typing import Any

from open_spiel.python.algorithms.best_response import BestResponsePolicy
from open_spiel.python.policy import UniformRandomPolicy
from reporting import RESULTS, format_command, write_result

from arena.config.study import EVALUATED, parse_evaluated_figure
from arena.doctor import describe_environment
from arena.errors import ConfigError
from arena.evaluate.evaluation import make_game, play_lineups, require_playable
from arena.evaluate.played import MatchOutcome
from arena.play.contenders import ScriptedContender
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from games.abilities import SpielRules

CONTENDERS = ("random", "oracle")
MATCHES = 400
SEED = 0


@dataclass(frozen=True)
class World:
    """Table of a study: its game, and the players other than the learning policies."""

    game: GameSpec
    others: dict[str, str]
    """Scripted policies by seat."""
    paid: list[str]
    """Seats whose payoff is the figure, if the report does not have it."""

    @property
    def own(self) -> list[str]:
        """Seats of the learning policies."""
        return [seat for seat in make_game(self.game).possible_agents if seat not in self.others]


def list_worlds(study: dict[str, Any]) -> list[World]:
    """Return the tables on which a saved study measures its figure."""
    experiment, figure = merge_last_stage(study["experiment"]), study["study"]["figure"]
    if figure.startswith(EVALUATED):
        game = experiment["evaluate"]["games"][parse_evaluated_figure(figure)[0] - 1]
        return [World(GameSpec.model_validate(game), find_scripted_seats(experiment, game["name"]), [])]
    worlds = []
    for table in experiment.get("tables") or [experiment]:
        seats = table["seats"].items()
        others = {seat: player["policy"] for seat, player in seats if player["policy"] not in experiment["policies"]}
        parts = figure.split(".")
        paid = [s for s, player in seats if s not in others and parts[-1] in (s, player.get("role"))]
        worlds.append(World(GameSpec.model_validate(table["game"]), others, paid))
    of_named_games = [world for world in worlds if world.game.name in figure.split(".")]
    return of_named_games or worlds


def merge_last_stage(experiment: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment; for a pipeline, with the last stage's settings over the shared ones."""
    parts = [part for part in (experiment.get("stages") or [{}])[-1].values() if isinstance(part, dict)]
    return experiment | {name: setting for part in parts for name, setting in part.items()}


def find_scripted_seats(experiment: dict[str, Any], game: str) -> dict[str, str]:
    """Return the policies that do not learn, by seat, at the experiment's table of this game."""
    tables = experiment.get("tables") or [experiment]
    seats: dict[str, Any] = next((table["seats"] for table in tables if table["game"]["name"] == game), {})
    policies = {seat: player["policy"] for seat, player in seats.items() if "policy" in player}
    return {seat: policy for seat, policy in policies.items() if policy not in experiment["policies"]}


def compute_value(match: MatchOutcome, figure: str, world: World) -> float | None:
    """Return a match's figure, from its report or from the payoffs of the `paid` seats, or None if it has neither."""
    name = parse_evaluated_figure(figure)[1].removeprefix(
        f"{world.game.name}."
    )  # the prefix of runs with several games
    if name in match.report:
        return float(match.report[name])
    return fmean(match.payoffs[seat] for seat in world.paid) if world.paid else None


def measure_contender(worlds: list[World], contender: str, figure: str, matches: int) -> dict[str, Any]:
    """Return a contender's mean figure and turns per seat and match. Raises ConfigError if it cannot play."""
    values, turns = [], []
    for world in worlds:
        seats = make_game(world.game).possible_agents
        lineup = {seat: ScriptedContender(world.others.get(seat, contender)) for seat in seats}
        require_playable([ScriptedContender(contender)], world.game)
        outcomes, _ = asyncio.run(play_lineups([lineup], world.game, matches // len(worlds), SEED))
        finished = [match for match in outcomes[0] if match]
        values += [value for match in finished if (value := compute_value(match, figure, world)) is not None]
        turns += [fmean(match.acts[seat] for seat in world.own) for match in finished]
    return ({"mean": mean_ci(values)._asdict()} if values else {}) | {"turns": fmean(turns)}


def compute_best_play(world: World) -> float | None:
    """Return the payoff of a best response to random play, or None.

    It exists for OpenSpiel's games with one learning seat, whose other seats all play at random.
    """
    game = make_game(world.game)
    if not isinstance(game, SpielRules) or {*world.others.values()} != {"random"} or len(world.own) > 1:
        return None
    response = BestResponsePolicy(game.spiel, game.possible_agents.index(world.own[0]), UniformRandomPolicy(game.spiel))
    return float(response.value(game.spiel.new_initial_state()))


def measure_world(study: dict[str, Any], matches: int) -> dict[str, Any]:
    """Return each contender's figures in a study's world, and best play's payoff if it is known."""
    figure, worlds = study["study"]["figure"], list_worlds(study)
    found: dict[str, Any] = {"figure": figure, "games": [world.game.model_dump() for world in worlds]}
    for contender in CONTENDERS:
        try:
            found[contender] = measure_contender(worlds, contender, figure, matches)
        except ConfigError as error:
            found[contender] = {"left out": str(error)}
    best = [value for world in worlds if (value := compute_best_play(world)) is not None]
    return found | ({"best play": fmean(best)} if len(best) == len(worlds) else {})


def format_summary(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the printed summary."""
    for name, world in found.items():
        texts = (
            f"{player} {world[player].get('mean', {}).get('estimate', nan):.2f} ({world[player]['turns']:.1f} turns)"
            for player in CONTENDERS
            if "turns" in world[player]
        )
        yield f"{name:24} {world['figure']:28} {', '.join(texts)}"


def main() -> None:
    """Measure all worlds and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="default: all saved studies")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    quick = options.quick
    studies = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("study-*.json"))]
    matches = 10 if quick else MATCHES
    old = json.loads((RESULTS / "worlds.json").read_text())["worlds"] if options.studies else {}
    found = {
        name: old[name] if options.studies and name not in options.studies else measure_world(study, matches)
        for study in studies
        if (name := study["name"])
    }
    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "matches": matches, "seed": SEED, "worlds": found}
    write_result("worlds", result, quick)
    print("\n".join(format_summary(found)))


if __name__ == "__main__":
    main()
