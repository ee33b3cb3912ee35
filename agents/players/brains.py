"""Brains by name: policies without weights, written `name` or `name:argument`, such as `random` or `mcts:100`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.names import nearest
from agents.players import negotiators
from agents.players.base import Brain
from agents.players.simple import FirstLegal, Random

BRAINS: dict[str, Callable[[int], Brain]] = {"random": Random, "first_legal": FirstLegal, **negotiators.BRAINS}


class BrainError(ValueError):
    """A brain that there is not, or that cannot play this game; the message is one line."""


def check_brain(spec: str) -> None:
    """Raises BrainError, naming the nearest, when the spec names no brain."""
    if spec not in BRAINS:
        raise BrainError(f"unknown brain '{spec}'{nearest(spec, BRAINS)}")


def make_brain(spec: str, seed: int, game: Any) -> Brain:
    """The brain of this spec for one seat of one match; `game` is the match's own game, for those that search it."""
    check_brain(spec)
    return BRAINS[spec](seed)
