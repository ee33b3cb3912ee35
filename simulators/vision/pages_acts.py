"""Acts of the game `pages`, and their parser."""

from __future__ import annotations

import re
from typing import NamedTuple

from games.base import to_one_line

USAGE = "search WORDS, bbox x0 y0 x1 y1, or answer X"
MAX_CHARACTERS = 200
"""Maximum characters of an act's words."""
_MARKED = re.compile(r"<(search|bbox|answer)>([^<>]*)</\1>", re.IGNORECASE)
_CELL = re.compile(r"[A-I]", re.IGNORECASE)
_PLAIN = re.compile(r"(search|bbox|answer)\b[ :]*(.*)", re.IGNORECASE | re.DOTALL)


class Act(NamedTuple):
    """Act of the viewer."""

    kind: str
    """"search", "bbox" or "answer"."""
    words: str

    def __str__(self) -> str:
        return f"{self.kind} {self.words}"


def read_act(text: str) -> Act | None:
    """Return the act in a text: `KIND WORDS` alone, or the first <KIND>WORDS</KIND> after a thought.

    A single letter from A to I, the name of a cell, is a `bbox`. Returns None if there is no act, or if its words are
    missing or longer than `MAX_CHARACTERS`.
    """
    if _CELL.fullmatch(text.strip()):
        return Act("bbox", text.strip().upper())
    match = _MARKED.search(text) or _PLAIN.fullmatch(text.strip())
    words = to_one_line(match[2], MAX_CHARACTERS + 1) if match else ""
    return Act(match[1].lower(), words) if match and 0 < len(words) <= MAX_CHARACTERS else None
