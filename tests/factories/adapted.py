"""Helpers for tests of adapted games: dealt games, and reasons why a game cannot be made."""

from typing import Any, TypeVar

import pytest

import games

Adapted = TypeVar("Adapted")


def make_dealt_game(kind: type[Adapted], name: str, seed: int = 0, **options: Any) -> Adapted:
    """Make and reset the game of this name, which must be of this class."""
    game = games.make(name, **options)
    assert isinstance(game, kind)
    game.reset(seed=seed)
    return game


def get_refusal_reason(name: str, **options: Any) -> str:
    """Return the reason, which must be one line, why the game cannot be made."""
    with pytest.raises(ValueError) as error:
        games.make(name, **options)
    assert "\n" not in str(error.value)
    return str(error.value)
