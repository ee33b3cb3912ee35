"""Texts as they may stand on the page: harmless, of bounded length, numbers in a reader's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from arena.plain import printable

LONGEST = 2000
"""Characters of a text that are shown."""


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
