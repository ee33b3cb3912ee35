"""Reference players of `zoom`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.vision.boxes import SCALE
from simulators.vision.drawing import pick
from simulators.vision.scenes import cells_of_colour

if TYPE_CHECKING:
    from simulators.vision.zoom import Zoom

Choose = Callable[["Zoom", np.random.Generator], int]
"""Choice of a cell to look at."""


def _looker(choose: Choose) -> Callable[[Zoom, int], Answer]:
    """Return a factory of players that look at one chosen cell and say its digit."""

    def make(game: Zoom, seed: int) -> Answer:
        rng = np.random.default_rng([seed, 1])
        chosen = 0

        def act(seen: View) -> str:
            nonlocal chosen
            if seen.public["looks"]:
                return str(game.scene.digits[chosen])
            chosen = choose(game, rng)
            return _look(game, chosen)

        return act

    return make


def _look(game: Zoom, cell: int) -> str:
    """Return the act that shows exactly a cell, rounded to thousandths in a box."""
    if game.act == "cell":
        return game.names[cell]
    column, row = cell % game.cells, cell // game.cells
    edges = (column, row, column + 1, row + 1)
    left, top, right, bottom = (edge * SCALE // game.cells for edge in edges)
    return f"{left} {top} {right - 1} {bottom - 1}"


def _target(game: Zoom, rng: np.random.Generator) -> int:
    return game.scene.target


def _of_colour(game: Zoom, rng: np.random.Generator) -> int:
    return pick(rng, cells_of_colour(game.scene))


def _random(game: Zoom, seed: int) -> Answer:
    """Return a player that picks any listed act, and boxes and digits at random."""
    rng = np.random.default_rng([seed, 1])

    def act(seen: View) -> str:
        if seen.legal is not None:
            return str(rng.choice(seen.legal))
        left, right = sorted(rng.choice(SCALE, 2, replace=False).tolist())
        top, bottom = sorted(rng.choice(SCALE, 2, replace=False).tolist())
        return f"{left} {top} {right} {bottom}"

    return act


def _blind(game: Zoom, seed: int) -> Answer:
    """Return a player that reads texts alone: without a picture all cells, and all digits, are alike."""
    return lambda seen: "7" if seen.public["looks"] else _look(game, 0)


PLAYERS: Mapping[str, Callable[[Zoom, int], Answer]] = {
    "noop": lambda game, seed: lambda seen: "",
    "random": _random,
    "oracle": _looker(_target),
    "blind": _blind,
    "colour": _looker(_of_colour),
}
"""`colour` is a flawed demonstrator: it sees colours but no forms, and is right half of the time with distractors."""
