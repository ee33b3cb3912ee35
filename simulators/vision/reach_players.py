"""Scripted players of the game `reach`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script
from simulators.vision.reach_table import (
    BINS,
    CONTACT,
    DOWN,
    NEAR,
    SIDE,
    STILL,
    STRIDE,
    UNIT,
    Point,
    Table,
    as_coarse,
    as_fine,
    compute_distance,
)  # fmt: skip


class Match(Protocol):
    """Attributes of a `reach` match that its players read."""

    table: Table
    wanted: int
    bins: int


Bins = tuple[int, int, int]
BEHIND = CONTACT + UNIT // 2
"""Distance of the hand from a block before a push, in units."""
ALIGNED = 3 * UNIT // 4
"""Maximum distance of the hand from its place behind the block when a push begins, in units."""


def expert_act(table: Table, block: int, bins: int = BINS) -> Bins:
    """Return an expert's next act for the task with this block, in 32 bins. `bins` is the resolution of acts."""
    target = table.blocks[block]
    if not table.pushes:
        return move_towards(table.hand, target, DOWN if _arrives(table.hand, target, bins) else 0)
    ring = table.layout.ring
    distance = max(compute_distance(target, ring), 1)
    offset = (ring[0] - target[0], ring[1] - target[1])
    behind = (target[0] - offset[0] * BEHIND // distance, target[1] - offset[1] * BEHIND // distance)
    if compute_distance(table.hand, behind) > ALIGNED:
        return move_towards(table.hand, behind, 0)
    goal = (ring[0] - offset[0] * CONTACT // distance, ring[1] - offset[1] * CONTACT // distance)
    return move_towards(table.hand, goal, DOWN)


def _arrives(hand: Point, target: Point, bins: int) -> bool:
    """Return True if the next movement towards a point, rounded to `bins` bins, ends on it."""
    dx, dy, _ = (as_fine(as_coarse(number, bins), bins) for number in move_towards(hand, target, 0))
    return compute_distance((hand[0] + (dx - STILL) * STRIDE, hand[1] + (dy - STILL) * STRIDE), target) <= NEAR


def move_towards(hand: Point, target: Point, grip: int) -> Bins:
    """Return the act that moves straight towards a point, at most as far as one act reaches."""
    steps = [_divide_rounded(end - start, STRIDE) for start, end in zip(hand, target, strict=True)]
    limit = STILL - 1
    longest = max(limit, *map(abs, steps))
    dx, dy = (STILL + _divide_rounded(step * limit, longest) for step in steps)
    return dx, dy, grip


def _divide_rounded(value: int, divisor: int) -> int:
    return (2 * value + divisor) // (2 * divisor)


def _make_doer(choose: Callable[[Match, int], int]) -> Callable[[Match, int], Script]:
    """Return a factory of players that do the task with the block that `choose` picks at the start."""

    def make(game: Match, seed: int) -> Script:
        block = -1

        def act(view: View) -> str:
            nonlocal block
            block = choose(game, seed) if block < 0 else block
            return format_act(expert_act(game.table, block, game.bins), game.bins)

        return act

    return make


def _find_nearest(game: Match, seed: int, other_than: int = -1) -> int:
    table = game.table
    blocks = [block for block in range(len(table.blocks)) if block != other_than]
    return min(blocks, key=lambda block: compute_distance(table.hand, table.blocks[block]))


def _choose_unsure(game: Match, seed: int) -> int:
    """Return the named block or, half of the time, the nearest other one."""
    return game.wanted if np.random.default_rng([seed, 1]).integers(2) else _find_nearest(game, seed, game.wanted)


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that writes random bins."""
    rng = np.random.default_rng([seed, 1])
    return lambda view: " ".join(map(str, rng.integers(game.bins, size=3).tolist()))


def _make_blind(game: Match, seed: int) -> Script:
    """Return a player that ignores pictures: it goes to a corner, then to the middle, and puts the hand down."""
    turns_to_corner, turns = SIDE * UNIT // ((BINS - STILL - 1) * STRIDE) + 1, 0
    middle = SIDE * UNIT // 2 // STRIDE

    def act(view: View) -> str:
        nonlocal turns
        turns += 1
        done = (turns - turns_to_corner - 1) * (BINS - STILL - 1)
        step = min(BINS - STILL - 1, middle - done)
        bins = (0, 0, 0) if turns <= turns_to_corner else (STILL + max(step, 0),) * 2 + (0 if step > 0 else DOWN,)
        return format_act(bins, game.bins)

    return act


def format_act(act: Bins, bins: int) -> str:
    """Convert an act of 32 bins to text with `bins` bins."""
    return " ".join(str(as_coarse(number, bins)) for number in act)


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": lambda game, seed: lambda view: format_act((STILL, STILL, 0), game.bins),
    "random": _make_random,
    "oracle": _make_doer(lambda game, seed: game.wanted),
    "blind": _make_blind,
    "hasty": _make_doer(_find_nearest),
    "unsure": _make_doer(_choose_unsure),
}
"""Flawed demonstrators: `hasty` takes the nearest block, whatever its colour; `unsure` takes the named one in half of
its matches, and the nearest other one in the rest."""
