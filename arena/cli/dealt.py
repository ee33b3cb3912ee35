"""Deal of a match, from its game, options and seed; and what theory says of the game. Runs no code of a run."""

import json
from collections.abc import Mapping
from typing import Any

import games

IN_PLAY = ("offer", "offered", "turn", "turns_left", "splits", "legal")
"""Facts that are of a turn and not of the deal, or follow from the others."""


def dealt(game: str, options: str, seed: int) -> dict[str, dict[str, Any]]:
    """Return what all know at first (""), then what each seat knows besides; {} for a game without rules here.

    >>> dealt("kuhn_poker", "{}", 7)["first"]
    {'card': 'K'}
    """
    if not _ours(game):
        return {}
    try:
        match = games.make(game, **json.loads(options))
        match.reset(seed=seed)
        facts = {"": match.public()} | {seat: match.private(seat) for seat in map(str, match.possible_agents)}
    except Exception:  # noqa: BLE001  of a log that is older than the rules, or was edited: there is no deal to show
        return {}
    return {who: {k: v for k, v in own.items() if k not in IN_PLAY and v is not None} for who, own in facts.items()}


def theory(game: str) -> Mapping[str, float]:
    """Return what the game states about itself, {} where it states nothing or is not ours."""
    return {name: float(value) for name, value in games.GAMES[game].theory.items()} if _ours(game) else {}


def _ours(game: str) -> bool:
    """Return True if the rules are Arena's own: others would be code of the run's or of another library."""
    return game in games.GAMES
