"""A scene whose overview is too coarse to read: look at a cell or a box of it, then say the target's digit (MGPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.abilities import Mark
from games.base import IllegalAct, choice, flag, whole_number
from games.png import Pixels
from simulators.vision.boxes import SCALE
from simulators.vision.scenes import NAMES, Scene, draw_scene, list_cells_of_colour, paint, show_overview, shows_digit
from simulators.vision.seeing import JUDGED, DigitWorld, read_digit
from simulators.vision.zoom_acts import (
    ANSWER,
    GROUNDED,
    Point,
    crop_look,
    describe_looks,
    mark_look,
    read_look,
    score_format,
)
from simulators.vision.zoom_lessons import KINDS, draw_lesson
from simulators.vision.zoom_players import PLAYERS

RIGHT, HIT, FORMAT = "right", "hit", "format"


class Zoom(DigitWorld):
    """Single-player game of looking at parts of a scene to find the digit in the wanted object's cell.

    The viewer first sees an overview. Acts: a cell's letter, `x0 y0 x1 y1` in thousandths of the scene (act "box") or
    `x y` from 0 to bins - 1 (act "point", which shows a window around it with a dot), as long as looks remain; after a
    look also a digit, which ends the match. An unreadable look shows the whole overview again. Additional options:
    cells, 2 to 5 per side; distractors, whether exactly one other object has the target's colour; act; bins, 2 to
    1,000; layout, "picture" (the overview is one image) or "tiles" (an image per cell, before the cell's letter; looks
    show the middle of a cell); max_looks, 1 to 16.

    Reward part "right": 1 for the target's digit. Two parts are logged but not part of the payoff: "hit", 1 for the
    first look that shows the target's digit in a window of at most two cells per side, and "format", 1 for an answer
    after only readable looks. Set `credit.weights: {hit: 0, format: 0}` to exclude them from learning. With points, the
    payoff is ViGoRL's: "right" is 0.6, and "format" 0.4, plus 0.08 for each point at least a cell away from all others.
    """

    name = "zoom"
    metadata: ClassVar[dict[str, Any]] = {"name": "zoom_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "the target's digit", HIT: "a look at the target", FORMAT: "every look was readable",
    }  # fmt: skip
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(
        self,
        *,
        cells: int = 3,
        distractors: bool = True,
        act: Literal["cell", "box", "point"] = "cell",
        bins: int = SCALE,
        layout: Literal["picture", "tiles"] = "picture",
        max_looks: int = 1,
        **options: Any,
    ) -> None:
        self.cells = whole_number("cells", cells, least=2, most=5)
        self.distractors, self.act = flag("distractors", distractors), choice("act", act, "cell", "box", "point")
        self.unpaid_parts = (HIT,) if act == "point" else (HIT, FORMAT)
        self.bins = whole_number("bins", bins, least=2, most=SCALE)
        self.layout = choice("layout", layout, "picture", "tiles")
        self.max_looks = whole_number("max_looks", max_looks, least=1, most=16)
        if self.act != "cell" and self.layout == "tiles":
            raise ValueError('act must be "cell" with the layout "tiles"')
        self.names = tuple(NAMES[: self.cells**2])
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a scene and show its overview."""
        self.scene = self.draw_scene(rng)
        self.digit = int(options.get(JUDGED, self.scene.digits[self.scene.target]))
        self.pixels = paint(self.scene, rng)
        self.looks = self.unreadable = 0
        self.hit = self.right = self.same_colour = False
        self.points: list[Point] = []
        self.overviews = self.show(f"find {self.scene.target_thing}", *self._overview())

    def _overview(self) -> list[str | Pixels]:
        return show_overview(self.pixels, self.names, self.layout == "tiles")

    def draw_scene(self, rng: np.random.Generator) -> Scene:
        """Draw a scene of the game's split."""
        return self.draw_entity(lambda: draw_scene(rng, self.cells, self.distractors), repr)

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        usage = describe_looks(self)
        looks = "one look" if self.max_looks == 1 else f"at most {self.max_looks} looks"
        return f"Find the object and say its digit. Look closer first, by {usage}: {looks}. Then say the digit."

    def public(self) -> dict[str, Any]:
        """Return the `wanted` object, the names of `cells`, and `looks` made and left (`looks_left`)."""
        looks_left = self.max_looks - self.looks
        return {
            "wanted": str(self.scene.target_thing),
            "cells": [*self.names],
            "looks": self.looks,
            "looks_left": looks_left,
        }

    def legal(self, seat: str) -> list[str] | None:
        """Return the cells while looks are left, and the digits after the first look.

        Returns None while boxes or points can still be looked at.
        """
        if self.act != "cell" and self.looks < self.max_looks:
            return None
        cells = [*self.names] if self.looks < self.max_looks else []
        return cells + ([str(digit) for digit in range(10)] if self.looks else [])

    def play(self, seat: str, act: str) -> str:
        """Look or answer, and return the act in normal form. Raises IllegalAct for a look when none is left."""
        digit = read_digit(act)
        if self.looks and digit is not None:
            self.right = digit == self.digit
            shares = (ANSWER, GROUNDED * score_format(self.points)) if self.act == "point" else (1.0, 1.0)
            for part, share, is_earned in zip((RIGHT, FORMAT), shares, (self.right, not self.unreadable), strict=True):
                self.pay(seat, part, share * is_earned)
            self.end("answered", "That is right." if self.right else "That is wrong.")
            return str(digit)
        if self.looks == self.max_looks:
            raise IllegalAct("no looks are left: say the digit")
        return self._look(seat, act)

    def _look(self, seat: str, text: str) -> str:
        """Show the part of the scene that an act names, and pay the first look at the target's digit."""
        self.looks += 1
        look = read_look(self, text)
        if look is None:
            self.unreadable += 1
            self.show(*self._overview())
            return "whole"
        self.show(crop_look(look, self.pixels, self.layout))
        self.points += [look.point] if look.point else []
        cells = {cell for cell in range(self.cells**2) if shows_digit(look.box, cell, self.cells)}
        if self.scene.target in cells and not self.hit:
            self.pay(seat, HIT, 1.0)
        self.hit |= self.scene.target in cells
        self.same_colour |= not cells.isdisjoint(list_cells_of_colour(self.scene))
        return look.text

    def marks(self, act: str) -> Sequence[Mark]:
        """Return the part of the overview that a look names."""
        is_look = self.looks < self.max_looks and not (self.looks and read_digit(act) is not None)
        look = read_look(self, act) if is_look else None
        return [mark_look(look, self.overviews)] if look else []

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `right` (if the digit was), `looks`, `unreadable`, `hit` and `same_colour`.

        `hit` is True if a look showed the target's digit, `same_colour` if one showed that of an object of its colour.
        """
        counts = {"hit": self.hit, "right": self.right, "looks": self.looks, "unreadable": self.unreadable}
        return {"score": float(self.right), "success": self.right, **counts, "same_colour": self.same_colour}
