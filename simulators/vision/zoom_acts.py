"""Looks, the acts of `zoom` that enlarge part of a picture, and the score of points (ViGoRL).

A look is a cell's letter, a box, or a point with a window around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from games.abilities import Mark
from games.contracts import Image
from games.png import Pixels
from simulators.vision.boxes import SCALE, Box, read_box, read_point
from simulators.vision.drawing import REDUCTION, crop
from simulators.vision.scenes import CELL, TILE, cell_box

Point = tuple[int, int]
"""Column and row in a scene's picture."""
DOT, DOT_COLOUR = 2, (255, 0, 0)
"""Width of the dot at a point in pixels, and its colour."""
APART = CELL
"""Minimum distance of a new point from all earlier new points, in pixels (`score_format`)."""
ANSWER, GROUNDED, EXTRA = 0.6, 0.4, 0.2
"""ViGoRL's weights of a right answer and of the format score, and the format score of each extra point."""


class LookGame(Protocol):
    """Options of a `zoom` game that determine how looks are written."""

    bins: int
    cells: int
    names: tuple[str, ...]

    @property
    def act(self) -> str: ...
    @property
    def layout(self) -> str: ...


class Look(NamedTuple):
    """Look at part of a scene's picture."""

    text: str
    """Act in normal form."""
    box: Box
    """Part to show, in the picture's pixels."""
    point: Point | None = None


def describe_looks(game: LookGame) -> str:
    """Describe in words how looks are written."""
    if game.act == "cell":
        return f"a letter, {game.names[0]} to {game.names[-1]}"
    return "x0 y0 x1 y1 from 0 to 999" if game.act == "box" else f"x y from 0 to {game.bins - 1}"


def read_look(game: LookGame, text: str) -> Look | None:
    """Parse a text as a look, by the game's kind of acts. Returns None if it is not a look."""
    size = game.cells * CELL
    if game.act == "box":
        box = read_box(text, size, size)
        return box and Look(" ".join(map(str, box)), box)
    if game.act == "point":
        bins = read_point(text, game.bins)
        return bins and _look_around(bins, game.bins, size)
    name = text.strip().upper()
    return Look(name, _find_box(game, game.names.index(name))) if name in game.names else None


def _look_around(bin_pair: Point, bins: int, size: int) -> Look:
    """Return a look at the middle of a bin, with a window of a cell's size that lies within the picture."""
    x, y = ((2 * number + 1) * size // (2 * bins) for number in bin_pair)
    left, top = (min(max(centre - CELL // 2, 0), size - CELL) for centre in (x, y))
    return Look(f"{bin_pair[0]} {bin_pair[1]}", (left, top, left + CELL, top + CELL), (x, y))


def _find_box(game: LookGame, cell: int) -> Box:
    left, top, right, bottom = cell_box(cell, game.cells)
    edge = (CELL - TILE) // 2 if game.layout == "tiles" else 0
    return left + edge, top + edge, right - edge, bottom - edge


def look_at(game: LookGame, cell: int) -> str:
    """Return the act that shows a cell. Boxes and points are rounded to thousandths and bins."""
    column, row = cell % game.cells, cell // game.cells
    if game.act == "point":
        x, y = ((2 * index + 1) * game.bins // (2 * game.cells) for index in (column, row))
        return f"{x} {y}"
    if game.act == "cell":
        return game.names[cell]
    left, top, right, bottom = (edge * SCALE // game.cells for edge in (column, row, column + 1, row + 1))
    return f"{left} {top} {right - 1} {bottom - 1}"


def crop_look(look: Look, pixels: Pixels, layout: str) -> Pixels:
    """Return the part of a scene's picture that a look shows, with a dot at its point, if any."""
    size = TILE if layout == "tiles" else CELL
    view = crop(pixels, look.box, size, size)
    if look.point:
        column, row = look.point[0] - look.box[0], look.point[1] - look.box[1]
        view[row : row + DOT, column : column + DOT] = DOT_COLOUR
    return view


def mark_look(look: Look, overviews: Sequence[Image]) -> Mark:
    """Return a look's mark in the overview: its box or point in a single image, or the whole image of its tile."""
    if len(overviews) == 1:
        edges = (*look.point, *look.point) if look.point else look.box
        return Mark(overviews[0].hash, *(edge / REDUCTION for edge in edges))
    side = math.isqrt(len(overviews))
    cell = look.box[1] // CELL * side + look.box[0] // CELL
    return Mark(overviews[cell].hash, 0, 0, TILE, TILE)


def score_format(points: Sequence[Point]) -> float:
    """Return ViGoRL's format score of readable points: 1, plus `EXTRA` for each new point after the first.

    A point is new if it is at least `APART` pixels from all new points before it.
    """
    new: list[Point] = []
    for point in points:
        if all(math.dist(point, other) >= APART for other in new):
            new.append(point)
    return 1.0 + EXTRA * (len(new) - 1)
