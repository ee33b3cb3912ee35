"""Scenes of `zoom`: a grid of cells, some with a coloured form, each with a small digit."""

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
"""Width and height of a cell's overview, and of the middle of a cell, which holds its digit."""
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXY"
"""Names of cells, row by row."""
NONE = "none"
RADII, SHIFT = (17, 20), 2
"""Limits of an object's radius, and the largest shift of its centre, in pixels."""
MARK = 4
"""Width of a corner mark's arms in pixels."""
DIGIT_ROW, DIGIT_COLUMNS = 17, (17, 20, 23)
"""Row, and possible columns, of the top left corner of a digit in its cell."""


class Thing(NamedTuple):
    """Object of a scene."""

    colour: str
    form: str

    def __str__(self) -> str:
        return f"{self.colour} {self.form}"


class Scene(NamedTuple):
    """Content of a scene: the object in each cell, or None, the digits, and the cell of the target."""

    things: tuple[Thing | None, ...]
    digits: tuple[int, ...]
    target: int

    @property
    def cells(self) -> int:
        """Number of cells on a side."""
        return math.isqrt(len(self.digits))

    @property
    def target_thing(self) -> Thing:
        """Wanted object."""
        thing = self.things[self.target]
        assert thing is not None
        return thing


def draw_scene(rng: np.random.Generator, cells: int, distractors: bool) -> Scene:
    """Draw a scene with objects in two thirds of the cells.

    If `distractors`, exactly one other object has the target's colour, in another form. Otherwise no other object has.
    """
    colour, form = pick(rng, [*COLOURS]), pick(rng, FORMS)
    others = [one for one in COLOURS if one != colour]
    things = [Thing(colour, form)]
    if distractors:
        things.append(Thing(colour, pick(rng, [one for one in FORMS if one != form])))
    while len(things) < 2 * cells**2 // 3:
        things.append(Thing(pick(rng, others), pick(rng, FORMS)))
    places = rng.permutation(cells**2)[: len(things)].tolist()
    held = dict(zip(places, things, strict=True))
    digits = rng.integers(10, size=cells**2).tolist()
    return Scene(tuple(held.get(cell) for cell in range(cells**2)), tuple(digits), places[0])


def paint(scene: Scene, rng: np.random.Generator) -> Pixels:
    """Paint a scene with `CELL` pixels per cell. The random draws do not depend on the digits."""
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
    """Return a cell of a picture with cells of `size` pixels, counted row by row."""
    side = pixels.shape[1] // size
    top, left = cell // side * size, cell % side * size
    return pixels[top : top + size, left : left + size]


def crop_middle(pixels: Pixels, cell: int) -> Pixels:
    """Return the middle of a cell of a scene's picture at full size, `TILE` x `TILE`: the plate with its digit."""
    edge = (CELL - TILE) // 2
    return crop_cell(pixels, cell, CELL)[edge : edge + TILE, edge : edge + TILE]


def show_overview(pixels: Pixels, names: Sequence[str], is_tiled: bool) -> list[str | Pixels]:
    """Return a scene's overview as parts of a message: one picture, or if `is_tiled` each cell before its name."""
    full = reduce(pixels)
    if not is_tiled:
        return [full]
    return [part for cell, name in enumerate(names) for part in (crop_cell(full, cell, TILE), name)]


def list_cells_of_colour(scene: Scene) -> list[int]:
    """Return the cells whose objects have the target's colour, including the target's own cell."""
    return [cell for cell, thing in enumerate(scene.things) if thing and thing.colour == scene.target_thing.colour]


def mark_corner(pixels: Pixels) -> Pixels:
    """Draw a yellow mark into a picture's top left corner, its longer arm along the top, and return the picture."""
    pixels[:MARK, : CELL * 3 // 2] = pixels[: CELL * 3 // 4, :MARK] = COLOURS["yellow"]
    return pixels


def resize(pixels: Pixels) -> Pixels:
    """Resize a picture to `CELL` x `CELL` pixels by nearest neighbours."""
    return crop(pixels, (0, 0, pixels.shape[1], pixels.shape[0]), CELL, CELL)


def cell_box(cell: int, side: int) -> Box:
    """Return the box of a cell in a scene's picture."""
    column, row = cell % side, cell // side
    return column * CELL, row * CELL, (column + 1) * CELL, (row + 1) * CELL


def compute_iou(one: Box, two: Box) -> float:
    """Return the intersection over union of two boxes, each with an area."""
    width = min(one[2], two[2]) - max(one[0], two[0])
    height = min(one[3], two[3]) - max(one[1], two[1])
    shared = max(width, 0) * max(height, 0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, two))
    return shared / (areas - shared)


def shows_digit(box: Box, cell: int, side: int) -> bool:
    """Return True if a box contains the whole middle of a cell and is at most two cells wide and high."""
    left, top, right, bottom = box
    column, row = cell % side * CELL + (CELL - TILE) // 2, cell // side * CELL + (CELL - TILE) // 2
    is_inside = left <= column and top <= row and column + TILE <= right and row + TILE <= bottom
    return is_inside and max(right - left, bottom - top) <= 2 * CELL
