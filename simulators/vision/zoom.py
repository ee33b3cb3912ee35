"""A scene whose overview is too coarse to read: look at a cell or a box of it, then say the target's digit (MGPO)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.abilities import GroundingLesson
from games.base import IllegalAct, choice, flag, whole_number
from simulators.vision.boxes import read_box
from simulators.vision.drawing import DIGITS, crop, read_digit
from simulators.vision.scenes import CELL, NAMES, Scene, cell_of, draw_scene, middle, overview, paint, shows_digit
from simulators.vision.seeing import VIEWER, Seeing
from simulators.vision.zoom_lessons import KINDS, draw_lesson
from simulators.vision.zoom_players import PLAYERS

RIGHT, HIT, FORMAT = "right", "hit", "format"


class Zoom(Seeing):
    """Game of one viewer, who sees a scene's overview, looks closer, and says the digit in the wanted object's cell.

    Acts: a cell's letter or, with act "box", `x0 y0 x1 y1` in thousandths of the scene, as long as looks remain; after
    a look also a digit, which ends the match. A look at anything else shows the whole overview again. Options besides
    Simulator's: cells 2 to 5 a side; distractors, whether exactly one other object has the target's colour; act "cell"
    or "box"; layout "picture" (the overview is one image) or "tiles" (an image per cell, before the cell's letter;
    looks show the middle of a cell); max_looks, 1 to 16.

    Reward part "right": 1 for the target's digit. Parts "hit", 1 for the first look that shows the target's digit in a
    window of at most two cells a side, and "format", 1 for the answer if no look was unreadable, are measured and no
    part of the payoff: set `credit.weights: {hit: 0, format: 0}` to leave them out of learning.
    """

    name = "zoom"
    metadata: ClassVar[dict[str, Any]] = {"name": "zoom_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "the target's digit", HIT: "a look at the target", FORMAT: "every look was readable",
    }  # fmt: skip
    theory: ClassVar[Mapping[str, float]] = {"blind": 0.1}
    players = PLAYERS
    lesson_kinds = KINDS
    floor = 0.1

    def __init__(
        self,
        *,
        cells: int = 3,
        distractors: bool = True,
        act: Literal["cell", "box"] = "cell",
        layout: Literal["picture", "tiles"] = "picture",
        max_looks: int = 1,
        **options: Any,
    ) -> None:
        self.cells = whole_number("cells", cells, least=2, most=5)
        self.distractors, self.act = flag("distractors", distractors), choice("act", act, "cell", "box")
        self.layout = choice("layout", layout, "picture", "tiles")
        self.max_looks = whole_number("max_looks", max_looks, least=1, most=16)
        if self.act == "box" and self.layout == "tiles":
            raise ValueError('act must be "cell" with the layout "tiles"')
        self.names = tuple(NAMES[: self.cells**2])
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a scene and show its overview. The reset option `judged` replaces the digit that counts as right."""
        self.scene = self.draw_scene(rng)
        self.digit = int(options.get("judged", self.scene.digits[self.scene.target]))
        self.pixels = paint(self.scene, rng)
        self.looks = self.unreadable = 0
        self.hit = self.right = self.same_colour = False
        self._show_overview(f"find {self.scene.wanted}")

    def draw_scene(self, rng: np.random.Generator) -> Scene:
        """Draw a scene of the game's split."""
        return self.draw_entity(lambda: draw_scene(rng, self.cells, self.distractors), repr)  # type: ignore[no-any-return]

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        where = f"a letter, {self.names[0]} to {self.names[-1]}" if self.act == "cell" else "x0 y0 x1 y1 from 0 to 999"
        looks = "one look" if self.max_looks == 1 else f"at most {self.max_looks} looks"
        return f"Find the object and say its digit. Look closer first, by {where}: {looks}. Then say the digit."

    def public(self) -> dict[str, Any]:
        """Return the `wanted` object, the names of `cells`, and `looks` made and left (`looks_left`)."""
        left = self.max_looks - self.looks
        return {"wanted": str(self.scene.wanted), "cells": [*self.names], "looks": self.looks, "looks_left": left}

    def legal(self, seat: str) -> list[str] | None:
        """Return the cells while looks are left, and the digits after the first look; None for boxes."""
        if self.act == "box" and self.looks < self.max_looks:
            return None
        cells = [*self.names] if self.looks < self.max_looks else []
        return cells + ([str(digit) for digit in range(10)] if self.looks else [])

    def play(self, seat: str, act: str) -> str:
        """Look or answer, and return the act in normal form. Raises IllegalAct for no digit when no looks are left."""
        digit = read_digit(act)
        if self.looks and digit is not None:
            self.right = digit == self.digit
            self.pay(seat, RIGHT, float(self.right))
            self.pay(seat, FORMAT, float(not self.unreadable))
            self.end("answered", "That is right." if self.right else "That is wrong.")
            return str(digit)
        if self.looks == self.max_looks:
            raise IllegalAct("no looks are left: say the digit")
        self.looks += 1
        return self._look_at_cell(seat, act.strip().upper()) if self.act == "cell" else self._look_at_box(seat, act)

    def _look_at_cell(self, seat: str, name: str) -> str:
        if name not in self.names:
            return self._show_whole()
        cell = self.names.index(name)
        self.show(middle(self.pixels, cell) if self.layout == "tiles" else cell_of(self.pixels, cell, CELL))
        thing = self.scene.things[cell]
        self._count(seat, cell == self.scene.target, bool(thing and thing.colour == self.scene.wanted.colour))
        return name

    def _look_at_box(self, seat: str, text: str) -> str:
        box = read_box(text, *self.pixels.shape[1::-1])
        if box is None:
            return self._show_whole()
        self.show(crop(self.pixels, box, CELL, CELL))
        seen = [cell for cell in range(self.cells**2) if shows_digit(box, cell, self.cells)]
        coloured = [cell for cell in seen if (it := self.scene.things[cell]) and it.colour == self.scene.wanted.colour]
        self._count(seat, self.scene.target in seen, bool(coloured))
        return " ".join(map(str, box))

    def _show_whole(self) -> str:
        self.unreadable += 1
        self._show_overview("")
        return "whole"

    def _show_overview(self, text: str) -> None:
        self.show(*([text] if text else []), *overview(self.pixels, self.names, self.layout == "tiles"))

    def _count(self, seat: str, hit: bool, same_colour: bool) -> None:
        if hit and not self.hit:
            self.pay(seat, HIT, 1.0)
        self.hit, self.same_colour = self.hit or hit, self.same_colour or same_colour

    def payoffs(self) -> dict[str, float]:
        """Return the payoffs without the parts "hit" and "format"."""
        own = self._totals[VIEWER]
        return {VIEWER: super().payoffs()[VIEWER] - own.get(HIT, 0.0) - own.get(FORMAT, 0.0)}

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success` and `right` (the digit was), `looks`, `unreadable`, `hit` and `same_colour`."""
        looked = {"hit": self.hit, "right": self.right, "looks": self.looks, "unreadable": self.unreadable}
        return {"score": float(self.right), "success": self.right, **looked, "same_colour": self.same_colour}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal the digit."""
        return {"digit": (f"digit {self.digit}", DIGITS[self.digit])}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of the same scene with two digits that count as right, which the seat never learns."""
        one, two = rng.permutation(10)[:2].tolist()
        return {"judged": one}, {"judged": two}

    def lesson(self, rng: random.Random, kind: str) -> GroundingLesson:
        """Draw a lesson; see `zoom_lessons` for the kinds. Raises ValueError for another kind."""
        return draw_lesson(self, np.random.default_rng(rng.getrandbits(64)), kind)
