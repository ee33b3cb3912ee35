"""Reference players of `transform`."""

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
    from simulators.vision.transform import Transform

Choose = Callable[["Transform", np.random.Generator], int]


def _mender(choose: Choose) -> Callable[[Transform, int], Answer]:
    """Return a factory of players that mend the picture, crop one chosen cell, and say its digit."""

    def make(game: Transform, seed: int) -> Answer:
        rng = np.random.default_rng([seed, 1])
        chosen = 0

        def act(seen: View) -> str:
            nonlocal chosen
            if seen.public["runs"]:
                return str(game.scene.digits[chosen])
            chosen = choose(game, rng)
            return mending(game, chosen)

        return act

    return make


def mending(game: Transform, cell: int) -> str:
    """Return code that makes the picture upright and bright, and crops a cell."""
    code = "image"
    code += f".rotate({360 - game.turned})" if game.turned else ""
    code += ".flip()" if game.flipped else ""
    code += ".brighten(8)" if game.dimmed else ""
    edges = (cell % 3, cell // 3, cell % 3 + 1, cell // 3 + 1)
    left, top, right, bottom = (edge * SCALE // 3 for edge in edges)
    return f"{code}.crop({left}, {top}, {right - 1}, {bottom - 1})"


def _random(game: Transform, seed: int) -> Answer:
    """Return a player that runs random code, or none, before it says a random digit."""
    rng = np.random.default_rng([seed, 1])
    codes = ["image.rotate(90)", "last.flip()", "image.brighten(4)", "last.crop(0, 0, 332, 332)"]

    def act(seen: View) -> str:
        if seen.public["turns_left"] > 1 and rng.integers(2):
            return pick(rng, codes)
        return str(rng.integers(10))

    return act


PLAYERS: Mapping[str, Callable[[Transform, int], Answer]] = {
    "noop": lambda game, seed: lambda seen: "",
    "random": _random,
    "oracle": _mender(lambda game, rng: game.scene.target),
    "blind": lambda game, seed: lambda seen: "7",
    "colour": _mender(lambda game, rng: pick(rng, cells_of_colour(game.scene))),
}
"""`colour` is a flawed demonstrator: it mends well, but sees no forms, and is right half of the time."""
