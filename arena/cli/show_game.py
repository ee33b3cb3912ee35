"""`arena show game NAME`: what a role may rely on in a game, and who plays it."""

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
from agents.facts import fact_lines
from arena.cli.catalogue import entries, sample_views
from games.contracts import Game

SHOWN_ACTS = 8


def describe(name: str) -> dict[str, Any]:
    """Return all that a role's author needs to know of a game; ConfigError names the nearest game, or an extra."""
    from arena.evaluate.evaluation import make_game
    from arena.play.settings import GameSpec

    game, factory = make_game(GameSpec(name=name)), games.maker(name)
    views = {view.seat: view for view in reversed(sample_views(name, "", ""))}  # each seat's first
    seats = [str(seat) for seat in game.possible_agents]
    mover = next(seat for seat in seats if seat in views)
    return {
        "game": name,
        "what": inspect.getdoc(getattr(factory, "func", factory)) or "",
        "rules": views[mover].rules,
        "seats": seats,
        "public": dict(views[mover].public),
        "private": {seat: dict(views[seat].private) for seat in seats if seat in views},
        "acts": {seat: list(views[seat].legal or ()) for seat in seats if seat in views},
        "options": {option: list(told) for option, *told in _options(factory)},
        "rewards": dict(game.reward_parts),
        "theory": {name: float(value) for name, value in game.theory.items()},
        "players": _players(game),
        "roles": [row["role"] for row in entries("roles") if row["game"] == name],
    }


def _options(factory: Any) -> Iterator[tuple[str, str, str]]:
    """Name, type and default of each option, the game's own before those that all games share."""
    names = games.options_of(factory) if isinstance(factory, type) else ()
    found: dict[str, inspect.Parameter] = {}
    for owner in factory.__mro__ if isinstance(factory, type) else ():
        if "__init__" in vars(owner) and owner is not object:
            parameters = inspect.signature(vars(owner)["__init__"]).parameters
            found = {**parameters, **found}
    for name in names:
        annotation, default = found[name].annotation, found[name].default
        shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        kind = "any" if annotation is inspect.Parameter.empty else shown
        yield name, kind, "needed" if default is inspect.Parameter.empty else json.dumps(default, default=str)


def _players(game: Game) -> list[str]:
    """Names of the scripted policies that can take some seat of this game; of a search, one of a certain depth."""
    from agents.players.scripted import SCRIPTED, check_scripted

    # whether all of a game can be searched may take minutes to find out
    searched = {"minimax": "minimax:4", "nash": "" if game.perfect_information else "nash"}
    able = []
    for name in dict.fromkeys([*SCRIPTED, *game.players]):
        if spec := searched.get(name, name):
            with suppress(ScriptedPolicyError):
                check_scripted(spec, game)
                able.append(spec)
    return able


def show_game(console: Console, name: str) -> None:
    """The same, as a person reads it."""
    from agents.reply import visible

    told = describe(name)

    def head(title: str) -> None:
        console.print(Text(visible(f"— {title} —"), style="bold"))

    def line(text: str) -> None:
        console.print(Text(visible(text, keep="\n")), soft_wrap=True)

    head(told["game"])
    line(told["what"])
    head("rules, as {{ rules }}")
    line(told["rules"])
    head("public, what every seat sees; an example")
    for fact in fact_lines("public", told["public"]):
        line(fact)
    for seat in told["seats"]:
        head(f"seat {seat}")
        if seat not in told["private"]:
            line("(does not move in the example)")
            continue
        for fact in fact_lines("private", told["private"][seat]):
            line(fact)
        acts = told["acts"][seat]
        more = f", … ({len(acts)} acts)" if len(acts) > SHOWN_ACTS else ""
        line(f"legal = {', '.join(acts[:SHOWN_ACTS])}{more}" if acts else "legal = none: acts are not listed")
    head("options, as --option A=B or game.options")
    for option, (kind, default) in told["options"].items():
        line(f"{option}: {kind} = {default}")
    if told["rewards"]:
        head("rewards")
        line(", ".join(f"{part}: {what}" for part, what in told["rewards"].items()))
    if told["theory"]:
        head("theory")
        line(", ".join(f"{what} {value:g}" for what, value in told["theory"].items()))
    head("who can play it")
    line(", ".join(told["players"]) or "no scripted policy: models, endpoints and people")
    line(f"roles: {', '.join(told['roles']) or 'none of its own; player, nano_player, mars_player fit any game'}")
