"""Scripted players of the game `zoom`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.vision.boxes import SCALE
from simulators.vision.digit_players import choose_by_colour, choose_target, make_looker
from simulators.vision.drawing import DIGITS, pick
from simulators.vision.scenes import Scene, list_cells_of_colour
from simulators.vision.zoom_acts import LookGame, look_at


class Match(LookGame, Protocol):
    """Attributes of a `zoom` match that its players read."""

    scene: Scene


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that picks a random legal act or, if none are listed, a random box or point."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        if view.legal is not None:
            return str(rng.choice(view.legal))
        if game.act == "point":
            return " ".join(map(str, rng.integers(game.bins, size=2)))
        left, right = sorted(rng.choice(SCALE, 2, replace=False).tolist())
        top, bottom = sorted(rng.choice(SCALE, 2, replace=False).tolist())
        return f"{left} {top} {right} {bottom}"

    return act


def _make_blind(game: Match, seed: int) -> Script:
    """Return a player that ignores pictures: it always looks at the first cell and says the same digit."""
    return lambda view: "7" if view.public["looks"] else look_at(game, 0)


def _make_colour_twice(game: Match, seed: int) -> Script:
    """Return a player that looks at one or two objects of the wanted colour, and says the digit of one of them."""
    rng = np.random.default_rng([seed, 1])
    cells: list[int] = []

    def act(view: View) -> str:
        looks = int(view.public["looks"])
        if not looks:
            order = rng.permutation(list_cells_of_colour(game.scene)).tolist()
            cells[:] = order[: pick(rng, (1, 2)) if view.public["looks_left"] > 1 else 1]
        return look_at(game, cells[looks]) if looks < len(cells) else DIGITS[game.scene.digits[pick(rng, cells)]]

    return act


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": make_looker(choose_target, look_at, "looks"),
    "blind": _make_blind,
    "colour": make_looker(choose_by_colour, look_at, "looks"),
    "colour_twice": _make_colour_twice,
}
"""The last two are flawed demonstrators: they see colours but no forms, and with distractors are right half the time.
`colour_twice` says digits as words, which cannot be mistaken for the beginning of a point."""
