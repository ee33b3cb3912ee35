"""Scripted players that look at one cell of a scene and say its digit, for the games `zoom` and `transform`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script
from simulators.vision.drawing import pick
from simulators.vision.scenes import Scene, list_cells_of_colour


class ShowsScene(Protocol):
    """Protocol of a match that has a scene, the objects of its picture."""

    scene: Scene


Choose = Callable[[Any, np.random.Generator], int]
"""Function that chooses the cell to look at in a match."""


def make_looker(choose: Choose, look: Callable[[Any, int], str], fact: str) -> Callable[[Any, int], Script]:
    """Return a factory of players that look at one chosen cell and say its digit.

    `look` returns the act that shows a cell. `fact` names the public fact that counts the looks.
    """

    def make(game: ShowsScene, seed: int) -> Script:
        rng = np.random.default_rng([seed, 1])
        target = 0

        def act(view: View) -> str:
            nonlocal target
            if view.public[fact]:
                return str(game.scene.digits[target])
            target = choose(game, rng)
            return look(game, target)

        return act

    return make


def choose_target(game: ShowsScene, rng: np.random.Generator) -> int:
    """Return the wanted object's cell."""
    return game.scene.target


def choose_by_colour(game: ShowsScene, rng: np.random.Generator) -> int:
    """Return a random cell among those whose objects have the wanted colour."""
    return pick(rng, list_cells_of_colour(game.scene))
