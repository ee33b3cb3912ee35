"""Drawing with integer arithmetic, so that every processor gives the same pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from games.png import Pixels

Kind = TypeVar("Kind")
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (225, 50, 50), "green": (50, 190, 70), "blue": (60, 90, 235),
    "yellow": (235, 215, 60), "purple": (165, 65, 200), "cyan": (70, 210, 220),
}  # fmt: skip
FORMS = ("circle", "square", "triangle", "cross")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
REDUCTION = 3
"""Ratio of a picture's size to its overview's."""
GROUND, PLATE, INK = 24, 40, 240
GRAIN, TINT = 12, 18
"""Random variation of the ground's pixels and of an object's colour, in levels, so that no two pictures are equal."""
SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
"""Lit segments of each digit in a seven-segment display, by their usual letters."""
DIGIT_WIDTH, DIGIT_HEIGHT = 8, 14
_BARS: Mapping[str, tuple[slice, slice]] = {
    "a": (slice(0, 2), slice(0, 8)), "g": (slice(6, 8), slice(0, 8)), "d": (slice(12, 14), slice(0, 8)),
    "f": (slice(0, 8), slice(0, 2)), "b": (slice(0, 8), slice(6, 8)),
    "e": (slice(6, 14), slice(0, 2)), "c": (slice(6, 14), slice(6, 8)),
}  # fmt: skip


def pick(rng: np.random.Generator, options: Sequence[Kind]) -> Kind:
    """Draw one of these options uniformly. Faster than the generator's own `choice`."""
    return options[int(rng.integers(len(options)))]


def draw_ground(rng: np.random.Generator, height: int, width: int) -> Pixels:
    """Draw a dark grey ground with grain, [height, width, 3]."""
    grain = rng.integers(0, GRAIN, (height, width, 1), dtype=np.uint8)
    return np.repeat(grain + np.uint8(GROUND), 3, axis=2)


@cache
def draw_mask(form: str, radius: int) -> NDArray[np.bool_]:
    """Return the mask of a form in `FORMS`, [2 * radius + 1, 2 * radius + 1]: True where it is drawn."""
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    bar = radius // 3
    masks: Mapping[str, NDArray[np.bool_]] = {
        "circle": x * x + y * y <= radius * radius,
        "square": np.maximum(abs(x), abs(y)) <= radius * 7 // 8,
        "triangle": 2 * abs(x) <= y + radius,
        "cross": np.minimum(abs(x), abs(y)) <= bar,
    }
    return masks[form]


@cache
def draw_digit_mask(digit: int) -> NDArray[np.bool_]:
    """Return the mask of a digit, [14, 8]: a seven-segment display with strokes of two pixels.

    No stroke has a pixel whose row and column are both 2 modulo 3, and an overview (`reduce`) keeps only pixels whose
    row and column are both 1 modulo 3. So the overview hides which digit it is if the row and column of the digit's
    corner are 2 modulo 3.
    """
    lit = np.zeros((DIGIT_HEIGHT, DIGIT_WIDTH), bool)
    for segment in SEGMENTS[digit]:
        lit[_BARS[segment]] = True
    return lit


def put_form(
    pixels: Pixels, form: str, colour: str, centre: tuple[int, int], radius: int, rng: np.random.Generator
) -> None:
    """Draw a form around a centre (row, column), in a tint of its colour."""
    row, column = centre
    shifts = rng.integers(-TINT, TINT + 1, 3).tolist()
    tint = [min(max(level + shift, 0), 255) for level, shift in zip(COLOURS[colour], shifts, strict=True)]
    area = pixels[row - radius : row + radius + 1, column - radius : column + radius + 1]
    np.copyto(area, np.array(tint, np.uint8), where=draw_mask(form, radius)[..., None])


def put_digit(pixels: Pixels, digit: int, row: int, column: int) -> None:
    """Draw a digit on a dark plate, one pixel larger on each side. `row` and `column` are the digit's corner."""
    pixels[row - 1 : row + DIGIT_HEIGHT + 1, column - 1 : column + DIGIT_WIDTH + 1] = PLATE
    pixels[row : row + DIGIT_HEIGHT, column : column + DIGIT_WIDTH][draw_digit_mask(digit)] = INK


def crop(pixels: Pixels, box: tuple[int, int, int, int], height: int, width: int) -> Pixels:
    """Crop a box (left, top, right, bottom) and resize it by nearest neighbours, the middle pixel of each block."""
    left, top, right, bottom = box
    rows = top + (2 * np.arange(height) + 1) * (bottom - top) // (2 * height)
    columns = left + (2 * np.arange(width) + 1) * (right - left) // (2 * width)
    return pixels.take(rows, axis=0).take(columns, axis=1)


def reduce(pixels: Pixels) -> Pixels:
    """Return the overview of a picture: the middle pixel of each block of `REDUCTION` x `REDUCTION`."""
    height, width = pixels.shape[:2]
    return crop(pixels, (0, 0, width, height), height // REDUCTION, width // REDUCTION)
