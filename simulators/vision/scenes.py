"""Scenes of the game `zoom`: a grid of cells, each with a small digit and some with a coloured form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.vision.boxes import Box
from simulators.vision.drawing import COLOURS, FORMS, crop, draw_ground, pick, put_digit, put_form, reduce

CELL = 48
"""Width and height of a cell in pixels."""
TILE = 16
"""Width and height of a cell in the overview, and of a cell's middle, which holds its digit."""
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXY"
"""Names of cells, row by row."""
NONE = "none"
RADII, SHIFT = (17, 20), 2
"""Minimum and maximum of an object's radius, and maximum shift of its centre, in pixels."""
MARK = 4
"""Width of a corner mark's arms in pixels."""
DIGIT_ROW, DIGIT_COLUMNS = 17, (17, 20, 23)
"""Row, and possible columns, of a digit's upper left corner in its cell."""


class Thing(NamedTuple):
    """Object of a scene."""

    colour: str
    form: str

    def __str__(self) -> str:
        return f"{self.colour} {self.form}"


class Scene(NamedTuple):
    """Content of a scene's cells, row by row, and the target."""

    things: tuple[Thing | None, ...]
    """Object in each cell; None in empty cells."""
    digits: tuple[int, ...]
    """Digit in each cell."""
    target: int
    """Index of the cell with the wanted object."""

    @property
    def cells(self) -> int:
        """Number of cells along each side."""
        return math.isqrt(len(self.digits))

    @property
    def target_thing(self) -> Thing:
        """Object in the target cell."""
        thing = self.things[self.target]
        assert thing is not None
        return thing


def draw_scene(rng: np.random.Generator, cells: int, distractors: bool) -> Scene:
    """Draw a scene with objects in two thirds of the cells.

    With `distractors`, exactly one other object has the target's colour, in another form; otherwise none has.
    """
    colour, form = pick(rng, [*COLOURS]), pick(rng, FORMS)
    others = [other for other in COLOURS if other != colour]
    things = [Thing(colour, form)]
    if distractors:
        things.append(Thing(colour, pick(rng, [other for other in FORMS if other != form])))
    while len(things) < 2 * cells**2 // 3:
        things.append(Thing(pick(rng, others), pick(rng, FORMS)))
    cells_drawn = rng.permutation(cells**2)[: len(things)].tolist()
    thing_by_cell = dict(zip(cells_drawn, things, strict=True))
    digits = rng.integers(10, size=cells**2).tolist()
    return Scene(tuple(thing_by_cell.get(cell) for cell in range(cells**2)), tuple(digits), cells_drawn[0])


def paint(scene: Scene, rng: np.random.Generator) -> Pixels:
    """Draw a scene's picture, with `CELL` pixels per cell side. The random draws do not depend on the digits."""
    side = scene.cells
    pixels = draw_ground(rng, side * CELL, side * CELL)
    for cell, (thing, digit) in enumerate(zip(scene.things, scene.digits, strict=True)):
        top, left = cell // side * CELL, cell % side * CELL
        row, column = (rng.integers(-SHIFT, SHIFT + 1, 2) + CELL // 2).tolist()
        radius, offset = int(rng.integers(RADII[0], RADII[1] + 1)), pick(rng, DIGIT_COLUMNS)
        if thing:
            put_form(pixels, thing.form, thing.colour, (top + row, left + column), radius, rng)
        put_digit(pixels, digit, top + DIGIT_ROW, left + offset)
    return pixels


def crop_cell(pixels: Pixels, cell: int, size: int) -> Pixels:
    """Return the cell with this index (row by row) from a picture whose cells have sides of `size` pixels."""
    side = pixels.shape[1] // size
    top, left = cell // side * size, cell % side * size
    return pixels[top : top + size, left : left + size]


def crop_middle(pixels: Pixels, cell: int) -> Pixels:
    """Return the middle of a cell in a scene's full-size picture, `TILE` x `TILE` pixels: the plate with its digit."""
    edge = (CELL - TILE) // 2
    return crop_cell(pixels, cell, CELL)[edge : edge + TILE, edge : edge + TILE]


def show_overview(pixels: Pixels, names: Sequence[str], is_tiled: bool) -> list[str | Pixels]:
    """Return a viewer's view of a scene: the overview or, if `is_tiled`, each cell's overview before its name."""
    full = reduce(pixels)
    if not is_tiled:
        return [full]
    return [part for cell, name in enumerate(names) for part in (crop_cell(full, cell, TILE), name)]


def list_cells_of_colour(scene: Scene) -> list[int]:
    """Return the cells whose objects have the target's colour, including the target's cell."""
    return [cell for cell, thing in enumerate(scene.things) if thing and thing.colour == scene.target_thing.colour]


def mark_corner(pixels: Pixels) -> Pixels:
    """Draw a yellow mark in the upper left corner, with the longer arm along the top. Returns the same array."""
    pixels[:MARK, : CELL * 3 // 2] = pixels[: CELL * 3 // 4, :MARK] = COLOURS["yellow"]
    return pixels


def resize(pixels: Pixels) -> Pixels:
    """Return a picture of any size scaled to `CELL` x `CELL` pixels (nearest neighbour)."""
    return crop(pixels, (0, 0, pixels.shape[1], pixels.shape[0]), CELL, CELL)


def cell_box(cell: int, side: int) -> Box:
    """Return the box of a cell in a scene's picture."""
    column, row = cell % side, cell // side
    return column * CELL, row * CELL, (column + 1) * CELL, (row + 1) * CELL


def compute_iou(first: Box, second: Box) -> float:
    """Return the intersection over union of two boxes, each with an area."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    shared = max(width, 0) * max(height, 0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second))
    return shared / (areas - shared)


def shows_digit(box: Box, cell: int, side: int) -> bool:
    """Return True if a box contains the whole middle of a cell and is at most two cells wide and high."""
    left, top, right, bottom = box
    column, row = cell % side * CELL + (CELL - TILE) // 2, cell // side * CELL + (CELL - TILE) // 2
    is_inside = left <= column and top <= row and column + TILE <= right and row + TILE <= bottom
    return is_inside and max(right - left, bottom - top) <= 2 * CELL
