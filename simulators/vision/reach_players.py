"""Reference players of `reach`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.vision.reach_table import BINS, CONTACT, DOWN, NEAR, SIDE, STILL, STRIDE, UNIT, Point, Table, distance


class Played(Protocol):
    """Part of a match of `reach` that its players read."""

    table: Table
    wanted: int


Bins = tuple[int, int, int]
BEHIND = CONTACT + UNIT // 2
"""Distance of the hand from a block before a push, in units."""
ALIGNED = 3 * UNIT // 4
"""Largest distance from the place of a push at which it begins, in units."""


def expert_act(table: Table, block: int) -> Bins:
    """Return the bins of the next act of who does the task with this block."""
    at = table.blocks[block]
    if not table.pushes:
        return _towards(table.hand, at, DOWN if _arrives(table.hand, at) else 0)
    ring = table.layout.ring
    far = max(distance(at, ring), 1)
    way = (ring[0] - at[0], ring[1] - at[1])
    behind = (at[0] - way[0] * BEHIND // far, at[1] - way[1] * BEHIND // far)
    if distance(table.hand, behind) > ALIGNED:
        return _towards(table.hand, behind, 0)
    end = (ring[0] - way[0] * CONTACT // far, ring[1] - way[1] * CONTACT // far)
    return _towards(table.hand, end, DOWN)


def _arrives(hand: Point, at: Point) -> bool:
    """Return True if the next movement ends on a point."""
    dx, dy, _ = _towards(hand, at, 0)
    return distance((hand[0] + (dx - STILL) * STRIDE, hand[1] + (dy - STILL) * STRIDE), at) <= NEAR


def _towards(hand: Point, at: Point, grip: int) -> Bins:
    """Return the bins of a straight movement towards a point, at most as far as one act goes."""
    steps = [_rounded(to - start, STRIDE) for start, to in zip(hand, at, strict=True)]
    most = STILL - 1
    longest = max(most, *map(abs, steps))
    dx, dy = (STILL + _rounded(step * most, longest) for step in steps)
    return dx, dy, grip


def _rounded(value: int, divisor: int) -> int:
    return (2 * value + divisor) // (2 * divisor)


def _doer(choose: Callable[[Played], int]) -> Callable[[Played, int], Answer]:
    """Return a factory of players that do the task with the block that is chosen at the start."""

    def make(game: Played, seed: int) -> Answer:
        chosen = -1

        def act(seen: View) -> str:
            nonlocal chosen
            chosen = choose(game) if chosen < 0 else chosen
            return written(expert_act(game.table, chosen))

        return act

    return make


def _nearest(game: Played) -> int:
    table = game.table
    return min(range(len(table.blocks)), key=lambda block: distance(table.hand, table.blocks[block]))


def _random(game: Played, seed: int) -> Answer:
    """Return a player that writes random bins."""
    rng = np.random.default_rng([seed, 1])
    return lambda seen: " ".join(map(str, rng.integers(BINS, size=3).tolist()))


def _blind(game: Played, seed: int) -> Answer:
    """Return a player that reads texts alone: it goes to a corner, then to the middle, and puts the hand down."""
    far, turns = SIDE * UNIT // ((BINS - STILL - 1) * STRIDE) + 1, 0
    middle = SIDE * UNIT // 2 // STRIDE

    def act(seen: View) -> str:
        nonlocal turns
        turns += 1
        done = (turns - far - 1) * (BINS - STILL - 1)
        step = min(BINS - STILL - 1, middle - done)
        bins = (0, 0, 0) if turns <= far else (STILL + max(step, 0),) * 2 + (0 if step > 0 else DOWN,)
        return " ".join(map(str, bins))

    return act


def written(bins: Bins) -> str:
    """Return an act as text."""
    return " ".join(map(str, bins))


PLAYERS: Mapping[str, Callable[[Played, int], Answer]] = {
    "noop": lambda game, seed: lambda seen: written((STILL, STILL, 0)),
    "random": _random,
    "oracle": _doer(lambda game: game.wanted),
    "blind": _blind,
    "hasty": _doer(_nearest),
}
"""`hasty` is a flawed demonstrator: it takes the nearest block, whatever its colour."""
