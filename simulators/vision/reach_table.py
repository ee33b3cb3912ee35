"""Table of the game `reach`: a hand moves over blocks, and pushes them while it is down. All numbers are integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.vision.drawing import COLOURS, INK, draw_ground, draw_mask, pick, put_form

SIDE, UNIT = 48, 64
"""Width and height of the table in pixels, and units per pixel."""
BINS, STILL, DOWN, STRIDE = 32, 16, 16, 24
"""Bins per number of an act; bin of no movement; lowest grip bin that puts the hand down; units of movement per bin."""
BLOCK, HAND, BLOCKS = 4, 2, 3
"""Radii of a block and the hand in pixels, and the number of blocks."""
CONTACT, NEAR = (BLOCK + HAND) * UNIT, 3 * UNIT
"""Distance of hand and block when they touch, and maximum distance that counts as reached, in units."""
MARGIN, APART = 8, 10
"""Minimum distance of hand, blocks and ring from the edges, and from each other, in pixels.

There is always room for the fifth place: of nine points on the table (corners, edges, middle) each of the other four
excludes at most two.
"""
SUBSTEPS = 8

Point = tuple[int, int]
"""Column and row, in units."""


class Layout(NamedTuple):
    """Initial state of a match: positions and colours."""

    hand: Point
    blocks: tuple[Point, ...]
    ring: Point
    colours: tuple[str, ...]
    wanted: int
    """Index of the block that the instruction names."""
    seed: int
    """Seed of the picture's noise: grain and tints."""


def as_fine(number: int, bins: int) -> int:
    """Convert a bin of a scale with `bins` bins to one of 32 bins, centred at 16. The outermost bin may become 32."""
    half = bins // 2
    return STILL + (2 * (number - half) * STILL + half) // (2 * half)


def as_coarse(number: int, bins: int) -> int:
    """Convert one of 32 bins to the nearest one of a scale with `bins` bins."""
    half = bins // 2
    return min(max(half + (2 * (number - STILL) * half + STILL) // (2 * STILL), 0), bins - 1)


def draw_layout(rng: np.random.Generator) -> Layout:
    """Draw the positions of hand, blocks and ring, the blocks' colours and the wanted block."""
    points: list[Point] = []
    while len(points) < BLOCKS + 2:
        x, y = (rng.integers(MARGIN, SIDE - MARGIN, 2) * UNIT).tolist()
        if all(compute_distance((x, y), other) >= APART * UNIT for other in points):
            points.append((x, y))
    colours = tuple(rng.permutation(list(COLOURS))[:BLOCKS].tolist())
    return Layout(points[0], tuple(points[2:]), points[1], colours, pick(rng, range(BLOCKS)), int(rng.integers(2**31)))


def compute_distance(first: Point, second: Point) -> int:
    """Return the distance between two points in whole units, rounded down."""
    return isqrt((first[0] - second[0]) ** 2 + (first[1] - second[1]) ** 2)


@dataclass
class Table:
    """State of a match: positions of the hand and the blocks on the table."""

    layout: Layout
    pushes: bool
    """Whether the task is to push a block into the ring, instead of reaching it."""
    hand: Point = field(init=False)
    blocks: list[Point] = field(init=False)
    is_down: bool = False
    follows: bool = False
    """Whether pictures are centred on the hand, instead of showing the whole table."""

    def __post_init__(self) -> None:
        self.hand, self.blocks = self.layout.hand, [*self.layout.blocks]

    def move(self, dx: int, dy: int, grip: int) -> None:
        """Put the hand down or lift it (`grip`), then move it by `dx` and `dy`; all three are bins of 32.

        In a pushing task, a lowered hand pushes blocks.
        """
        self.is_down = grip >= DOWN
        start, movement = self.hand, ((dx - STILL) * STRIDE, (dy - STILL) * STRIDE)
        for step in range(1, SUBSTEPS + 1):
            x, y = (a + b * step // SUBSTEPS for a, b in zip(start, movement, strict=True))
            self.hand = _clamp_to_table((x, y), HAND)
            if self.is_down and self.pushes:
                self.blocks = [self._push(block) for block in self.blocks]

    def _push(self, block: Point) -> Point:
        """Return a block's position after a push: straight away from the hand until they only touch."""
        distance = compute_distance(self.hand, block)
        if distance >= CONTACT:
            return block
        x, y = (b - h for b, h in zip(block, self.hand, strict=True)) if distance else (1, 0)
        distance = max(distance, 1)
        return _clamp_to_table((self.hand[0] + x * CONTACT // distance, self.hand[1] + y * CONTACT // distance), BLOCK)

    def measure_remaining(self, block: int) -> int:
        """Return the remaining distance, in units, until the task is done with this block."""
        reached = max(compute_distance(self.hand, self.blocks[block]) - (CONTACT if self.pushes else NEAR), 0)
        return reached + max(compute_distance(self.blocks[block], self.layout.ring) - NEAR, 0) * self.pushes

    def is_done(self, block: int) -> bool:
        """Return True if the task is done with this block: it is in the ring, or the hand is down on it."""
        if self.pushes:
            return compute_distance(self.blocks[block], self.layout.ring) <= NEAR
        return self.is_down and compute_distance(self.hand, self.blocks[block]) <= NEAR

    def paint(self) -> Pixels:
        """Draw the table from above, [48, 48, 3]. The hand is a white cross, and a white square while it is down.

        A picture that `follows` the hand is black beyond the table's edges.
        """
        pixels = _draw_without_hand(self.layout, tuple(self.blocks), self.pushes).copy()
        row, column = _find_pixel(self.hand)
        area = pixels[row - HAND : row + HAND + 1, column - HAND : column + HAND + 1]
        area[draw_mask("square" if self.is_down else "cross", HAND)] = INK
        if not self.follows:
            return pixels
        padded_pixels = np.pad(pixels, ((SIDE // 2, SIDE // 2), (SIDE // 2, SIDE // 2), (0, 0)))
        return padded_pixels[row : row + SIDE, column : column + SIDE]

    def locate_in_picture(self, point: Point) -> Point | None:
        """Return a point's position in units from the picture's upper left corner, or None if it is not shown."""
        if not self.follows:
            return point
        x, y = (axis - hand // UNIT * UNIT + SIDE // 2 * UNIT for axis, hand in zip(point, self.hand, strict=True))
        return (x, y) if 0 <= min(x, y) <= max(x, y) < SIDE * UNIT else None


@lru_cache(maxsize=64)
def _draw_without_hand(layout: Layout, blocks: tuple[Point, ...], has_ring: bool) -> Pixels:
    """Draw the table with its blocks and, if `has_ring`, the ring. Cached, because most acts move only the hand."""
    rng = np.random.default_rng(layout.seed)
    pixels = draw_ground(rng, SIDE, SIDE)
    if has_ring:
        row, column = _find_pixel(layout.ring)
        area = pixels[row - 5 : row + 6, column - 5 : column + 6]
        inner = np.pad(draw_mask("circle", 3), 2)
        area[draw_mask("circle", 5) & ~inner] = INK
    for colour, block in zip(layout.colours, blocks, strict=True):
        put_form(pixels, "circle", colour, _find_pixel(block), BLOCK, rng)
    return pixels


def _clamp_to_table(point: Point, radius: int) -> Point:
    """Return the nearest point at which a disc of this radius in pixels lies entirely on the table."""
    low, high = radius * UNIT, (SIDE - radius) * UNIT - 1
    return min(max(point[0], low), high), min(max(point[1], low), high)


def _find_pixel(point: Point) -> tuple[int, int]:
    """Return the row and column of the pixel at a point."""
    return point[1] // UNIT, point[0] // UNIT
