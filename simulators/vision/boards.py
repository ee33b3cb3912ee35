"""Slides of the game `pages` with objects instead of print: nine cells, each with a digit, some with an object."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.base import is_held_out
from simulators.vision.boxes import Box, read_box
from simulators.vision.drawing import COLOURS, FORMS
from simulators.vision.scenes import CELL, NAMES, TILE, Scene, Thing, cell_box, paint

SIDE = 3
CELLS = NAMES[: SIDE**2]
"""Names of cells, row by row."""
FIRMS, LETTERS = 250, 3
"""Number of firms in a deck, and of letters in a firm's name (in alphabetical order)."""
YEARS = range(21, 41)
HUES, PER_HUE = 3, 2
"""Number of colours on a board, and of objects of each colour, which differ in form."""


class Board(NamedTuple):
    """Content of a slide with objects."""

    firm: str
    year: int
    scene: Scene
    seed: int
    """Seed of the random details of the page's picture, such as its grain."""

    @property
    def topic(self) -> str:
        """Topic of the slide: "", because all boards of a firm have the same topic."""
        return ""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the page."""
        return SIDE * CELL, SIDE * CELL

    @property
    def cells(self) -> list[int]:
        """Cells with an object."""
        return [cell for cell, thing in enumerate(self.scene.things) if thing]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the objects, such as "red circle"."""
        return tuple(str(self.scene.things[cell]) for cell in self.cells)

    @property
    def values(self) -> tuple[int, ...]:
        """Digit on each object."""
        return tuple(self.scene.digits[cell] for cell in self.cells)

    @property
    def caption(self) -> str:
        """Text indexed for searches; viewers never see it."""
        return f"{self.firm} {self.year}"

    def question(self, row: int) -> str:
        """Return the question for the digit on an object, by its index in `labels`."""
        return f"find {self.labels[row]} in {self.firm} {self.year}"

    def rivals(self, row: int) -> list[int]:
        """Return the rows that a hasty player might confuse with this one: those of all objects with its colour."""
        return [other for other, label in enumerate(self.labels) if label.split()[0] == self.labels[row].split()[0]]

    def value_box(self, row: int) -> Box:
        """Return the box of the digit on an object: the middle of its cell."""
        left, top, *_ = cell_box(self.cells[row], SIDE)
        edge = (CELL - TILE) // 2
        return left + edge, top + edge, left + edge + TILE, top + edge + TILE

    def write_zoom(self, row: int) -> str:
        """Return the act that shows an object's cell."""
        return CELLS[self.cells[row]]

    def parse_box(self, words: str) -> Box | None:
        """Parse a cell's name, or four numbers in thousandths, as a box in pixels; None for other words."""
        if words.upper() in [*CELLS]:
            return cell_box(CELLS.index(words.upper()), SIDE)
        return read_box(words, *self.size)

    def draw(self) -> Pixels:
        """Draw the page, [144, 144, 3]."""
        return paint(self.scene, np.random.default_rng(self.seed))


def draw_things(rng: np.random.Generator) -> list[Thing]:
    """Draw the objects of a board: three colours, each in two forms."""
    hues = rng.permutation(np.array([*COLOURS]))[:HUES].tolist()
    return [Thing(hue, form) for hue in hues for form in rng.permutation(np.array(FORMS))[:PER_HUE].tolist()]


def place_things(rng: np.random.Generator, things: list[Thing]) -> Scene:
    """Place objects in random cells, and draw the digits of all cells. The target is the first object."""
    cells = rng.permutation(SIDE**2)[: len(things)].tolist()
    thing_by_cell = dict(zip(cells, things, strict=True))
    digits = rng.integers(10, size=SIDE**2).tolist()
    return Scene(tuple(thing_by_cell.get(cell) for cell in range(SIDE**2)), tuple(digits), cells[0])


def draw_boards(rng: np.random.Generator, split: str) -> Iterator[Board]:
    """Yield the boards of a split: two of each firm, which have the same objects and differ in everything else."""
    firms: dict[str, None] = {}
    while len(firms) < FIRMS:
        name = " ".join(sorted(rng.permutation(np.array([*ascii_uppercase]))[:LETTERS].tolist()))
        if split == "all" or is_held_out(f"pages:{name}") == (split == "test"):
            firms[name] = None
    for firm in firms:
        things = draw_things(rng)
        for year in rng.permutation(np.array(YEARS))[:2].tolist():
            yield Board(firm, year, place_things(rng, things), int(rng.integers(2**31)))
