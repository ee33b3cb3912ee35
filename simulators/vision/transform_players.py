"""Reference players of `transform`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.vision.boxes import SCALE
from simulators.vision.damage import Damage
from simulators.vision.digit_players import choose_by_colour, choose_target, make_looker
from simulators.vision.drawing import pick
from simulators.vision.scenes import Scene


class Played(Protocol):
    """Part of a match of `transform` that its players read."""

    scene: Scene
    damage: Damage


def mending(game: Played, cell: int) -> str:
    """Return code that makes the picture upright and bright, and crops a cell."""
    code = "image"
    code += f".rotate({360 - game.damage.turned})" if game.damage.turned else ""
    code += ".flip()" if game.damage.flipped else ""
    code += ".brighten(8)" if game.damage.dimmed else ""
    edges = (cell % 3, cell // 3, cell % 3 + 1, cell // 3 + 1)
    left, top, right, bottom = (edge * SCALE // 3 for edge in edges)
    return f"{code}.crop({left}, {top}, {right - 1}, {bottom - 1})"


def _random(game: Played, seed: int) -> Answer:
    """Return a player that runs random code, or none, before it says a random digit."""
    rng = np.random.default_rng([seed, 1])
    codes = ["image.rotate(90)", "last.flip()", "image.brighten(4)", "last.crop(0, 0, 332, 332)"]

    def act(seen: View) -> str:
        if seen.public["turns_left"] > 1 and rng.integers(2):
            return pick(rng, codes)
        return str(rng.integers(10))

    return act


PLAYERS: Mapping[str, Callable[[Played, int], Answer]] = {
    "noop": lambda game, seed: lambda seen: "",
    "random": _random,
    "oracle": make_looker(choose_target, mending, "runs"),
    "blind": lambda game, seed: lambda seen: "7",
    "colour": make_looker(choose_by_colour, mending, "runs"),
}
"""`colour` is a flawed demonstrator: it mends well, but sees no forms, and is right half of the time."""
