"""Scripted players of the game `transform`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.vision.damage import Damage
from simulators.vision.digit_players import choose_by_colour, choose_target, make_looker
from simulators.vision.drawing import pick
from simulators.vision.image_code import spell_out
from simulators.vision.scenes import NAMES, Scene


class Match(Protocol):
    """Attributes of a `transform` match that its players read."""

    scene: Scene
    damage: Damage
    terse: bool


def write_repair(game: Match, cell: int) -> str:
    """Return code that repairs the picture and crops a cell."""
    code = write(game, *list_repairs(game.damage), f"crop {NAMES[cell]}")
    return code.replace("last", "image")


def list_repairs(damage: Damage) -> list[str]:
    """Return the operations that undo the damage, in the words of `spell_out`."""
    turns = [f"rotate {4 - damage.turned // 90}"] if damage.turned else []
    return turns + damage.flipped * ["flip"] + damage.dimmed * ["bright"]


def write(game: Match, *words: str) -> str:
    """Return operations in the game's format: as words if it is terse, else as code on the newest result."""
    return " ".join(words) if game.terse else spell_out(" ".join(words))


def _make_in_steps(game: Match, seed: int) -> Script:
    """Return a player that mends the picture, then crops a random cell of the wanted colour, and says its digit."""
    rng = np.random.default_rng([seed, 1])
    acts: list[str] = []

    def act(view: View) -> str:
        if not view.public["runs"]:
            cell, words = choose_by_colour(game, rng), list_repairs(game.damage)
            mend = [write(game, *words)] if words else []
            acts[:] = [*mend, write(game, f"crop {NAMES[cell]}"), str(game.scene.digits[cell])]
        return acts[int(view.public["runs"])]

    return act


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that runs random code, or none, before it says a random digit."""
    rng = np.random.default_rng([seed, 1])
    codes = ["image.rotate(90)", "last.flip()", "image.brighten(4)", "last.crop(0, 0, 332, 332)"]

    def act(view: View) -> str:
        if view.public["turns_left"] > 1 and rng.integers(2):
            return pick(rng, codes)
        return str(rng.integers(10))

    return act


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": make_looker(choose_target, write_repair, "runs"),
    "blind": lambda game, seed: lambda view: "7",
    "colour": make_looker(choose_by_colour, write_repair, "runs"),
    "colour_in_steps": _make_in_steps,
}
"""The last two are flawed demonstrators: they mend well, but see no forms, and are right half of the time."""
