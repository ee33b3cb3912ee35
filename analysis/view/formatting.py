"""Formatting of texts and numbers for the viewer: sanitized, of bounded length."""

from __future__ import annotations

import math
import re
from typing import Any

from arena.plain import printable
from arena.statistics import SHARE, Bounds, Interval

MAX_CHARACTERS = 2000
"""Maximum number of characters of a text."""
MAX_ROWS = 100
"""Maximum number of rows of a list; browsers struggle with pages of more."""


def sanitize(value: Any, max_characters: int = MAX_CHARACTERS) -> str:
    """Return the value as text without control and bidirectional characters, cut to `max_characters` characters.

    Line breaks are kept, and HTML is not escaped.

    >>> sanitize("fine\\x1b[2J\\nby me"), sanitize("abcdef", 3)
    ('fine[2J\\nby me', 'abc …')
    """
    text = str(value)
    lines = "\n".join(printable(line) for line in text[:max_characters].splitlines())
    return f"{lines} …" if len(text) > max_characters else lines


def format_value(value: float, bounds: Bounds) -> str:
    """Format a number: a share in per cent, others with two decimals or, from 100 on, as integers; NaN as –.

    >>> format_value(2.5166, ANY), format_value(-140.2, ANY), format_value(2.1e-7, ANY)
    ('2.52', '−140', '2.1e−07')
    """
    if math.isnan(value):
        return "–"
    size = abs(value)
    if bounds == SHARE:
        text = f"{100 * value:.0f}\N{NO-BREAK SPACE}%"
    elif size >= 100:
        text = f"{value:,.0f}"
    elif size and size < 0.005:
        text = f"{value:.2g}"
    else:
        text = f"{value:.2f}"
    return ("0" + text[2:] if re.fullmatch(r"-0\.?0*\D*", text) else text).replace("-", "\N{MINUS SIGN}")


def format_interval(interval: Interval, bounds: Bounds) -> str:
    """Format the ends of an interval as "LOW to HIGH"; "" if they are unknown."""
    if math.isnan(interval.low):
        return ""
    return "{} to {}".format(*(format_value(end, bounds).removesuffix("\N{NO-BREAK SPACE}%") for end in interval[1:]))
