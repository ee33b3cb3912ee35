"""First-person pictures of houses by integer ray casting, so that every processor gives the same pixels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from games.png import Pixels
from simulators.vision.drawing import COLOURS
from simulators.vision.house import CELLS, DIRECTIONS, DOOR, HEADINGS, RADIUS, ROOM, VECTOR_LENGTH, House, Pose

EYE, CEILING = 1200, 2400
"""Heights of the eye and the ceiling. The view is 90 degrees wide and high, and the eye looks straight ahead."""
NEAREST = 100
"""Minimum depth at which a thing is drawn."""
TINTS = ((120, 104, 96), (96, 110, 122), (106, 114, 90), (116, 98, 114))
"""Colours of rooms' walls."""
SKY, FLOOR = (62, 62, 66), (34, 32, 30)
DIM, BRIGHT, FADE = 208, 256, 6000
"""Brightness of walls along the x axis and the y axis; depth at which a wall has half its brightness."""
BOX = 800
"""Height of a box."""
FARTHEST = 2**40
SLACK = 2
"""Millimetres by which each end of a wall is extended, so that no ray slips between two walls."""

Integers = NDArray[np.int64]


def paint(house: House, pose: Pose, size: int) -> Pixels:
    """Draw the walker's view, [size, size, 3]."""
    return draw_view(house, pose, size)[0]


def draw_view(house: House, pose: Pose, size: int) -> tuple[Pixels, Integers]:
    """Draw the walker's view. Returns the pixels and the number of the thing at each, -1 for none."""
    offsets = 2 * np.arange(size, dtype=np.int64) + 1 - size  # in halves of a pixel from the middle
    pixels = np.empty((size, size, 3), np.uint8)
    pixels[: size // 2], pixels[size // 2 :] = SKY, FLOOR
    depths, colours = _cast(house, pose, offsets, size)
    at_wall = abs(offsets)[:, None] * depths <= EYE * size
    pixels[at_wall] = np.broadcast_to(colours, pixels.shape)[at_wall]
    numbers = np.full((size, size), -1, np.int64)
    forward, right = DIRECTIONS[pose.heading], DIRECTIONS[(pose.heading + HEADINGS // 4) % HEADINGS]
    for depth, side, number in sorted(
        (
            ((thing.x - pose.x) * forward[0] + (thing.y - pose.y) * forward[1]) // VECTOR_LENGTH,
            ((thing.x - pose.x) * right[0] + (thing.y - pose.y) * right[1]) // VECTOR_LENGTH,
            number,
        )
        for number, thing in enumerate(house.things)
    )[::-1]:
        if depth >= NEAREST:
            thing = house.things[number]
            is_seen = _draw_outline(thing.kind, offsets, depth, side, size) & (depth < depths)
            pixels[is_seen], numbers[is_seen] = COLOURS[thing.colour], number
    return pixels, numbers


def _draw_outline(kind: str, offsets: Integers, depth: int, side: int, size: int) -> NDArray[np.bool_]:
    """Return the mask of a thing at this depth and distance to the right (`side`), [size, size]."""
    across = offsets[None, :] * depth - side * size
    below = offsets[:, None] * depth
    if kind == "ball":
        down = below - (EYE - RADIUS) * size
        return across**2 + down**2 <= (RADIUS * size) ** 2
    top, half = (-EYE, RADIUS * 3 // 5) if kind == "pillar" else (EYE - BOX, RADIUS)
    return (abs(across) <= half * size) & (top * size <= below) & (below <= EYE * size)


def _cast(house: House, pose: Pose, offsets: Integers, size: int) -> tuple[Integers, NDArray[np.uint8]]:
    """Return depth and colour of the nearest wall in each column, [size] and [size, 3]."""
    forward, right = DIRECTIONS[pose.heading], DIRECTIONS[(pose.heading + HEADINGS // 4) % HEADINGS]
    directions = [forward[axis] * size + right[axis] * offsets for axis in (0, 1)]
    eye, depths, tints = (pose.x, pose.y), np.full(size, FARTHEST), np.zeros((size, 3), np.int64)
    for axis, side, position, low, high, tint in _list_walls(house):
        direction, across = directions[axis], directions[1 - axis]
        is_hit = (direction > 0) if side else (direction < 0)
        depth = (position - eye[axis]) * size * VECTOR_LENGTH // np.where(is_hit, direction, 2 * side - 1)
        along = eye[1 - axis] + depth * across // (size * VECTOR_LENGTH)
        is_hit &= (depth >= 0) & (depth < depths) & (low - SLACK <= along) & (along <= high + SLACK)
        depths = np.where(is_hit, depth, depths)
        tints[is_hit] = np.array(tint) * (DIM if axis else BRIGHT)
    return depths, (tints * FADE // (BRIGHT * (FADE + depths[:, None]))).astype(np.uint8)


def _list_walls(house: House) -> Iterator[tuple[int, int, int, int, int, tuple[int, int, int]]]:
    """Yield each room's pieces of wall: the axis that they cross, side, position on that axis, both ends, and colour.

    Rays in the axis's direction hit side 1, rays against it hit side 0.
    """
    openings = house.openings()
    for cell, tint in zip(CELLS, house.tints, strict=False):
        for axis, side in product((0, 1), (0, 1)):
            position, low = (cell[axis] + side) * ROOM, cell[1 - axis] * ROOM
            gaps = [
                middle
                for is_upright, wall_position, middle in openings
                if is_upright == (axis == 0) and wall_position == position and low < middle < low + ROOM
            ]
            ends = [low, *(middle + half for middle in gaps for half in (-DOOR // 2, DOOR // 2)), low + ROOM]
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                yield axis, side, position, start, end, TINTS[tint]
