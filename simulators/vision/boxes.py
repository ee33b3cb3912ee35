"""Boxes and points that models write, in thousandths or other fractions of a picture's size."""

from __future__ import annotations

import re
from collections.abc import Sequence

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are not included."""
SCALE = 1000
_NUMBER = r"(-?[0-9]{1,9})(?:\.[0-9]{0,9})?"
_POINT, _BOX = (
    re.compile(r"[\[(]?\s*" + r"[\s,]+".join([_NUMBER] * count) + r"\s*[\])]?", re.ASCII) for count in (2, 4)
)


def read_box(text: str, width: int, height: int) -> Box | None:
    """Parse `x0 y0 x1 y1` to a box in pixels of a picture of this size. Returns None if the text is not a box.

    Brackets and commas may surround and separate the numbers, whose fractions are dropped. Numbers below 0 count as 0,
    and above 999 as 999. A box without width or height is invalid.
    """
    found = _BOX.fullmatch(text.strip())
    return clamp_box([int(number) for number in found.groups()], width, height) if found else None


def read_point(text: str, bins: int) -> tuple[int, int] | None:
    """Parse `x y`, two numbers from 0 to `bins` - 1, by the rules of `read_box`. Returns None if it is not a point."""
    found = _POINT.fullmatch(text.strip())
    if not found:
        return None
    x, y = (min(max(int(number), 0), bins - 1) for number in found.groups())
    return x, y


def clamp_box(edges: Sequence[int], width: int, height: int) -> Box | None:
    """Convert left, top, right and bottom from thousandths to pixels of a picture, by the rules of `read_box`.

    Returns None without width or height.
    """
    left, top, right, bottom = (min(max(edge, 0), SCALE - 1) for edge in edges)
    if right <= left or bottom <= top:
        return None
    starts = (min(_pixel(left, width), width - 1), min(_pixel(top, height), height - 1))
    return *starts, max(_pixel(right + 1, width), starts[0] + 1), max(_pixel(bottom + 1, height), starts[1] + 1)


def _pixel(thousandths: int, size: int) -> int:
    """Convert thousandths of a size to pixels, rounded to the nearest."""
    return (2 * thousandths * size + SCALE) // (2 * SCALE)
