"""Output of `arena show game NAME`: rules, facts, acts, options, theory and players of a game."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.text import Text

import games
from agents.errors import ScriptedPolicyError
from agents.facts import format_facts
from arena.cli.catalogue import list_entries, sample_views
from games.contracts import Game

SHOWN_ACTS = 8
"""Maximum legal acts to print per seat."""


def describe(name: str) -> dict[str, Any]:
    """Return a game's rules, facts, acts, options and players, as seen in a sample match.

    Raises ConfigError for an unknown game, or one whose library is missing.
    """
    from arena.evaluate.evaluation import make_game
    from arena.play.settings import GameSpec

    game, factory = make_game(GameSpec(name=name)), games.find_factory(name)
    views = {view.seat: view for view in reversed(sample_views(name, "", ""))}  # the first view of each seat
    seats = [str(seat) for seat in game.possible_agents]
    mover = next(seat for seat in seats if seat in views)
    return {
        "game": name,
        "description": inspect.getdoc(getattr(factory, "func", factory)) or "",
        "rules": views[mover].rules,
        "seats": seats,
        "public": dict(views[mover].public),
        "private": {seat: dict(views[seat].private) for seat in seats if seat in views},
        "acts": {seat: list(views[seat].legal or ()) for seat in seats if seat in views},
        "options": {option: list(about) for option, *about in _list_options(factory)},
        "rewards": dict(game.reward_parts),
        "theory": {name: float(value) for name, value in game.theory.items()},
        "players": _list_players(game),
        "roles": [row["role"] for row in list_entries("roles") if row["game"] == name],
    }


def _list_options(factory: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and default of each option; the game's own options come first."""
    names = games.list_options(factory) if isinstance(factory, type) else ()
    parameters_by_name: dict[str, inspect.Parameter] = {}
    for owner in factory.__mro__ if isinstance(factory, type) else ():
        if "__init__" in vars(owner) and owner is not object:
            parameters = inspect.signature(vars(owner)["__init__"]).parameters
            parameters_by_name = {**parameters, **parameters_by_name}
    for name in names:
        annotation, default = parameters_by_name[name].annotation, parameters_by_name[name].default
        type_name = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        kind = "any" if annotation is inspect.Parameter.empty else type_name
        yield name, kind, "needed" if default is inspect.Parameter.empty else json.dumps(default, default=str)


def _list_players(game: Game) -> list[str]:
    """Return the scripted policies that can play a seat of this game, minimax with a fixed depth."""
    from agents.players.scripted import SCRIPTED, check_scripted

    # checking whether a full search is possible may take minutes
    searched = {"minimax": "minimax:4", "nash": "" if game.perfect_information else "nash"}
    players = []
    for name in dict.fromkeys([*SCRIPTED, *game.players]):
        if spec := searched.get(name, name):
            with suppress(ScriptedPolicyError):
                check_scripted(spec, game)
                players.append(spec)
    return players


def show_game(console: Console, name: str) -> None:
    """Print a game's rules, facts, acts, options, rewards, theory and players, as `describe` returns them."""
    from agents.reply import remove_invisible

    description = describe(name)

    def section(title: str, *lines: str) -> None:
        console.print(Text(remove_invisible(f"— {title} —"), style="bold"))
        for line in lines:
            console.print(Text(remove_invisible(line, keep="\n")), soft_wrap=True)

    section(description["game"], description["description"])
    section("rules, as {{ rules }}", description["rules"])
    section("public, what every seat sees; an example", *format_facts("public", description["public"]))
    for seat in description["seats"]:
        if seat not in description["private"]:
            section(f"seat {seat}", "(does not move in the example)")
            continue
        acts = description["acts"][seat]
        more = f", … ({len(acts)} acts)" if len(acts) > SHOWN_ACTS else ""
        legal = f"legal = {', '.join(acts[:SHOWN_ACTS])}{more}" if acts else "legal = none: acts are not listed"
        section(f"seat {seat}", *format_facts("private", description["private"][seat]), legal)
    options = [f"{option}: {kind} = {default}" for option, (kind, default) in description["options"].items()]
    section("options, as --option A=B or game.options", *options)
    if description["rewards"]:
        section("rewards", ", ".join(f"{part}: {line}" for part, line in description["rewards"].items()))
    if description["theory"]:
        section("theory", ", ".join(f"{value_name} {value:g}" for value_name, value in description["theory"].items()))
    roles = ", ".join(description["roles"]) or "none of its own; player, nano_player, mars_player fit any game"
    players = ", ".join(description["players"]) or "no scripted policy: models, endpoints and people"
    section("who can play it", players, f"roles: {roles}")
