"""Texts as they may stand on the page: harmless, of bounded length, numbers in a reader's form."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from arena.plain import printable
from arena.statistics import SHARE, Bounds, Interval

LONGEST = 2000
"""Characters of a text that are shown."""
MOST = 100
"""Rows of a list that are shown: a page of more is read by nobody, and opened by no browser."""


def harmless(value: Any, longest: int = LONGEST) -> str:
    """The text without control and bidi characters, its lines kept, and not without end; still to be escaped.

    >>> harmless("fine\\x1b[2J\\nby me"), harmless("abcdef", 3)
    ('fine[2J\\nby me', 'abc …')
    """
    whole = str(value)
    lines = "\n".join(printable(line) for line in whole[:longest].splitlines())
    return f"{lines} …" if len(whole) > longest else lines


def figure(value: Any) -> str:
    """A value of a match's own report: yes or no, three digits, or its text.

    >>> figure(True), figure(2 / 3), figure("deal")
    ('yes', '0.667', 'deal')
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else harmless(value)


def in_words(value: float, bounds: Bounds) -> str:
    """A value for people: shares in per cent, others with two digits after the point, or three in all.

    >>> in_words(2.5166, ANY), in_words(-140.2, ANY), in_words(2.1e-7, ANY)
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


def spread(interval: Interval, bounds: Bounds) -> str:
    """The ends of an interval; "" where they are not known."""
    if math.isnan(interval.low):
        return ""
    return "{} to {}".format(*(in_words(end, bounds).removesuffix("\N{NO-BREAK SPACE}%") for end in interval[1:]))
