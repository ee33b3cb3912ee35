"""Text in capital letters and digits, drawn with bitmaps of 5 x 7 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from games.png import Pixels
from simulators.vision.drawing import INK

GLYPH_WIDTH, GLYPH_HEIGHT = 5, 7
ADVANCE = GLYPH_WIDTH + 1
"""Distance between the left edges of adjacent letters in pixels."""
ROWS = {
    "A": "0E11111F111111", "B": "1E11111E11111E", "C": "0E11101010110E", "D": "1E11111111111E",
    "E": "1F10101E10101F", "F": "1F10101E101010", "G": "0E11101711110F", "H": "1111111F111111",
    "I": "0E04040404040E", "J": "0702020202120C", "K": "11121418141211", "L": "1010101010101F",
    "M": "111B1515111111", "N": "11111915131111", "O": "0E11111111110E", "P": "1E11111E101010",
    "Q": "0E11111115120D", "R": "1E11111E141211", "S": "0F10100E01011E", "T": "1F040404040404",
    "U": "1111111111110E", "V": "11111111110A04", "W": "1111111515150A", "X": "11110A040A1111",
    "Y": "1111110A040404", "Z": "1F01020408101F", "0": "0E11131519110E", "1": "040C040404040E",
    "2": "0E11010204081F", "3": "1F02040201110E", "4": "02060A121F0202", "5": "1F101E0101110E",
    "6": "0608101E11110E", "7": "1F010204080808", "8": "0E11110E11110E", "9": "0E11110F01020C",
    " ": "00000000000000",
}  # fmt: skip
"""Rows of each letter, a byte in hexadecimal per row; its lowest five bits are the pixels."""


@cache
def draw_glyph(letter: str, scale: int = 1) -> NDArray[np.bool_]:
    """Return the mask of a letter in `ROWS`, [7 * scale, 5 * scale]. Raises KeyError for another letter."""
    rows = np.frombuffer(bytes.fromhex(ROWS[letter]), np.uint8)
    bits = np.unpackbits(rows[:, None], axis=1)[:, -GLYPH_WIDTH:].astype(bool)
    return bits.repeat(scale, axis=0).repeat(scale, axis=1)


def put_text(pixels: Pixels, text: str, row: int, column: int, scale: int, colour: int | Sequence[int] = INK) -> None:
    """Draw a text in capital letters; `row` and `column` are its corner. Raises KeyError for a letter not in `ROWS`."""
    for number, letter in enumerate(text.upper()):
        left = column + number * ADVANCE * scale
        shape = draw_glyph(letter, scale)
        pixels[row : row + len(shape), left : left + shape.shape[1]][shape] = np.array(colour, np.uint8)
