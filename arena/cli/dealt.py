"""A match's deal and a game's theory, which a report shows and a log does not hold. Runs no code of a run."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import games
from arena.errors import StoreError
from arena.evaluate.deal_facts import replay_facts
from games.contracts import Deal

IN_PLAY = ("offer", "offered", "turn", "turns_left", "splits", "legal")
"""Facts that are of a turn and not of the deal, or follow from the others."""


def dealt(game: str, options: str, seed: int, acts: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Facts that all know (""), then those of each seat, when it first moves; {} where they cannot be known.

    `options` is JSON, `acts` are those of the match, by seat. No deal comes of a game that is not Arena's own, of a log
    that is older than the rules, or of one that was edited.

    >>> dealt("kuhn_poker", "{}", 7, [("first", "BET"), ("second", "FOLD")])["first"]
    {'card': 'Q'}
    """
    if not _ours(game):
        return {}
    try:
        found = replay_facts(Deal(game, json.loads(options), seed), acts)
    except (StoreError, ValueError, TypeError):
        return {}
    facts = {"": found.public, **found.private}
    return {who: {k: v for k, v in own.items() if k not in IN_PLAY and v is not None} for who, own in facts.items()}


def theory(game: str) -> Mapping[str, float]:
    """Values that the game states about itself, {} where it states nothing or is not ours."""
    return {name: float(value) for name, value in games.GAMES[game].theory.items()} if _ours(game) else {}


def _ours(game: str) -> bool:
    """Return True if the rules are Arena's own: others would be code of the run's or of another library."""
    return game in games.GAMES
