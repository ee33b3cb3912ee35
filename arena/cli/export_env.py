"""`arena export-env`: write a game as an environment for another library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from arena.cli.contenders import Json, Option
from arena.errors import ConfigError

LIBRARIES = "gymnasium, openenv, pettingzoo, textarena, trl or verifiers"


def export_env(
    game: Annotated[str, typer.Argument(help="Game or simulator (arena list games).", show_default=False)],
    as_: Annotated[str, typer.Option("--as", help=f"Library: {LIBRARIES}.", show_default=False)],
    to: Annotated[Path, typer.Option(help="A folder that does not exist yet.", show_default=False)],
    seat: Annotated[
        str, typer.Option(help="The learner's seat, by name or number; default the first.", show_default=False)
    ] = "",
    against: Annotated[
        str, typer.Option(help="Scripted policy of all other seats; default random.", show_default=False)
    ] = "",
    option: Option = None,
    as_json: Json = False,
) -> None:
    """Write a game as an environment of another library: a small Python project to read, change and install.

    The learner plays one seat; pettingzoo and textarena have all seats as players. Rewards sum to the payoff that
    arena play gives for the same seed and acts, less penalties for illegal acts (docs/export-env.md).

    Example: arena export-env kuhn_poker --as gymnasium --against cfr --to kuhn
    """
    from arena.config.sources import parse_game_options
    from arena.export.environments.episode import Task, deal
    from arena.export.environments.targets import TARGETS, write_environment
    from games.names import nearest

    if as_ not in TARGETS:
        known = ", ".join(TARGETS)
        raise ConfigError(f"--as: unknown library '{as_[:64]}'{nearest(as_, TARGETS)} (one of: {known})")
    unused = "--seat" if seat else "--against" if against else ""
    if unused and TARGETS[as_].is_for_all_seats:
        raise ConfigError(f"{unused}: {as_} environments have all seats as players: leave it out")
    task = Task(game, parse_game_options(option or []), seat, against or "random")
    seats = task.make().possible_agents
    if against and len(seats) == 1:
        raise ConfigError(f"--against: {game} has one seat: leave it out")
    if not TARGETS[as_].is_for_all_seats:
        task = task.resolve()
        deal(task, 0).close()  # raises if the seat never has a turn against this player
    module = write_environment(task, as_, to)
    if as_json:
        print(json.dumps({"folder": str(to), "module": module, "needs": TARGETS[as_].needs}))
        return
    print(f"{to / module}.py: {game} as an environment of {as_}; read it first")
    print(f"next: pip install -e {to}")
