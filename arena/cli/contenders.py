"""Options for contenders and games that several commands share, and functions that resolve their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena.cli.console import PlainConsole, note
from arena.errors import ConfigError

if TYPE_CHECKING:
    from agents.players.servers import Endpoints
    from arena.play.contenders import Contender
    from arena.play.settings import GameSpec

CONTENDER_HELP = (
    "A scripted policy (random, mcts:100), a run (runs/latest, runs/latest@12, runs/latest@0:POLICY), a model "
    "or endpoint:MODEL."
)
Option = Annotated[
    list[str] | None, typer.Option(metavar="A=B", help="An option of the game, such as illegal=end; repeatable.")
]
Role = Annotated[str, typer.Option(help="Role of all models, instead of their own (arena list roles).")]
Split = Annotated[
    str,
    typer.Option(help="Split of a simulator's records: train, test or all; default test."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of deals and all other randomness.")]
Matches = Annotated[int, typer.Option(min=2, max=10**6, help="Minimum number of matches against each opponent.")]
Endpoint = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A=B",
        help="Server setting of endpoint:MODEL, such as url=http://localhost:8000/v1 or max_tokens=20000, or of "
        "endpoint@NAME:MODEL, such as NAME.key_variable=MY_KEY; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow code from the run's folder that no run on this machine used.")
]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")]


def split_names(text: str) -> list[str]:
    """Split a comma-separated option into its names, without duplicates. Commas in parentheses belong to a name."""
    parts = re.split(r",(?![^()]*\))", text)  # openspiel:oh_hell(players=3,num_suits=2) is one name
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def resolve_game(
    name: str, assignments: Sequence[str] | None, contenders: Sequence[Contender], split: str = ""
) -> GameSpec:
    """Return the game with the options of the first run among the contenders, overridden by `assignments` (A=B).

    A game with splits uses the test split by default, whatever the run trained on. Prints a notice if the run has not
    played the game, or was not trained on the train split alone.
    """
    from arena.config.own_files import resolve_game_name
    from arena.config.sources import parse_game_options
    from arena.evaluate.casting import list_casts, warn_unknown_games
    from arena.evaluate.evaluation import with_split
    from arena.play.settings import GameSpec

    overrides = parse_game_options(assignments or [])
    if split and "split" in overrides:
        raise ConfigError("--split and --option split: give one of them")
    runs = [(cast.name, cast.experiment) for cast in list_casts(contenders) if cast.experiment]
    name = resolve_game_name(name, *(experiment for _, experiment in runs))
    for line in warn_unknown_games(contenders, name):
        note(line)
    trained_games = [(run, table.game) for run, e in runs for table in e.all_tables() if table.game.name == name]
    options = {key: value for _, game in trained_games[:1] for key, value in game.options.items() if key != "split"}
    spec = with_split(_with_role_tools(GameSpec(name=name, options=options | overrides), contenders), split)
    if spec.options.get("split") == "test":
        for run in dict.fromkeys(run for run, game in trained_games if game.options.get("split", "all") != "train"):
            warning = f"{run} was not trained on the train split of {name} alone: it may have seen these deals"
            note(f"{warning} (to train on the split: --set game.options.split=train)")
    return spec


def _with_role_tools(spec: GameSpec, contenders: Sequence[Contender]) -> GameSpec:
    """Return the game with the tools of `--role` at the seats of the first contender that has this option."""
    from agents.role import list_roles
    from arena.config.role_tools import read_role_tools
    from arena.evaluate.casting import list_casts
    from arena.evaluate.evaluation import make_game
    from arena.play.making import SEAT_TOOLS

    cast = next((cast for cast in list_casts(contenders) if cast.own_role), None)
    tools = read_role_tools(cast.own_role, list_roles()) if cast else []
    if cast is None or not tools:
        return spec
    seats = cast.seats_in_run(spec.name, make_game(spec).possible_agents)
    tools_by_seat = {**spec.options.get(SEAT_TOOLS, {}), **dict.fromkeys(seats, tools)}
    return spec.model_copy(update={"options": {**spec.options, SEAT_TOOLS: tools_by_seat}})


def require_game(spec: GameSpec) -> None:
    """Raise ConfigError if the game does not exist. Games in files are not checked, because a run may supply them."""
    from arena.evaluate.evaluation import make_game

    if ".py:" not in spec.name:
        make_game(spec)


def make_endpoints(assignments: Sequence[str] | None) -> Endpoints:
    """Return endpoint servers with the settings of `--endpoint`. Raises ConfigError if one is malformed."""
    from agents.players.servers import Endpoints
    from arena.config.layers import parse_endpoints

    return Endpoints(parse_endpoints(assignments or []))


def make_announcer() -> Callable[[str], None]:
    """Return a function that announces a slow step, such as loading a model, on stderr if that is a terminal."""
    terminal = PlainConsole(stderr=True)

    def announce(step: str) -> None:
        if terminal.is_terminal:
            terminal.print(step, style="dim", markup=False, soft_wrap=True)

    return announce
