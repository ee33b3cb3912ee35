"""Reference players of `zoom`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.vision.boxes import SCALE
from simulators.vision.digit_players import choose_by_colour, choose_target, make_looker
from simulators.vision.scenes import Scene


class Played(Protocol):
    """Part of a match of `zoom` that its players read."""

    act: str
    cells: int
    names: tuple[str, ...]
    scene: Scene


def _look(game: Played, cell: int) -> str:
    """Return the act that shows exactly a cell, rounded to thousandths in a box."""
    if game.act == "cell":
        return game.names[cell]
    column, row = cell % game.cells, cell // game.cells
    edges = (column, row, column + 1, row + 1)
    left, top, right, bottom = (edge * SCALE // game.cells for edge in edges)
    return f"{left} {top} {right - 1} {bottom - 1}"


def _random(game: Played, seed: int) -> Answer:
    """Return a player that picks any listed act, and boxes and digits at random."""
    rng = np.random.default_rng([seed, 1])

    def act(seen: View) -> str:
        if seen.legal is not None:
            return str(rng.choice(seen.legal))
        left, right = sorted(rng.choice(SCALE, 2, replace=False).tolist())
        top, bottom = sorted(rng.choice(SCALE, 2, replace=False).tolist())
        return f"{left} {top} {right} {bottom}"

    return act


def _blind(game: Played, seed: int) -> Answer:
    """Return a player that reads texts alone: without a picture all cells, and all digits, are alike."""
    return lambda seen: "7" if seen.public["looks"] else _look(game, 0)


PLAYERS: Mapping[str, Callable[[Played, int], Answer]] = {
    "noop": lambda game, seed: lambda seen: "",
    "random": _random,
    "oracle": make_looker(choose_target, _look, "looks"),
    "blind": _blind,
    "colour": make_looker(choose_by_colour, _look, "looks"),
}
"""`colour` is a flawed demonstrator: it sees colours but no forms, and is right half of the time with distractors."""
