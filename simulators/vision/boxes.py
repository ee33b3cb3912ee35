"""Boxes that models write: four numbers from 0 to 999, thousandths of a picture's width and height."""

from __future__ import annotations

import re

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels; right and bottom are not included."""
SCALE = 1000
_NUMBER = r"(-?[0-9]{1,9})(?:\.[0-9]{0,9})?"
_BOX = re.compile(r"[\[(]?\s*" + r"[\s,]+".join([_NUMBER] * 4) + r"\s*[\])]?", re.ASCII)


def read_box(text: str, width: int, height: int) -> Box | None:
    """Return the box in `x0 y0 x1 y1` as pixels of a picture of this size; None if the text is no box.

    Brackets and commas may stand around and between the numbers, whose fractions are dropped. Numbers below 0 count as
    0, and above 999 as 999. A box whose right or bottom edge is not beyond its left or top edge is none.
    """
    found = _BOX.fullmatch(text.strip())
    if not found:
        return None
    left, top, right, bottom = (min(max(int(number), 0), SCALE - 1) for number in found.groups())
    if right <= left or bottom <= top:
        return None
    ends = (-(-(right + 1) * width // SCALE), -(-(bottom + 1) * height // SCALE))
    return left * width // SCALE, top * height // SCALE, *ends
