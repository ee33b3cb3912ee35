"""Acts of `frames`, and how texts are parsed to acts."""

from __future__ import annotations

import re
from typing import NamedTuple

from simulators.vision.seeing import read_digit

USAGE = "choose frames between a and b, get frame number at time m:ss, or output answer: X"
_CHOOSE = re.compile(r"(?:choose frames between ([0-9]{1,9}) and|([0-9]{1,9})) ([0-9]{1,9})", re.IGNORECASE)
_ONE = re.compile(r"frame ([0-9]{1,9})", re.IGNORECASE)
_TIME = re.compile(r"(?:get frame number at time )?([0-9]{1,4}):([0-5][0-9])", re.IGNORECASE)
_ACTION = re.compile(r"<action>([^<>]{0,200})</action>", re.IGNORECASE)
_INTERVAL = re.compile(r"([0-9]{1,9}) ?(?:and|to|-) ?([0-9]{1,9})")


class Choose(NamedTuple):
    """Choice of an interval of frames, both ends included."""

    first: int
    last: int
    agrees: bool
    """Whether the last interval in the thought, if there is any, is the same."""

    def __str__(self) -> str:
        return f"choose frames between {self.first} and {self.last}"


class LookUp(NamedTuple):
    """Question for the frame at a second of the clip."""

    second: int

    def __str__(self) -> str:
        return f"get frame number at time {format_clock(self.second)}"


class Answer(NamedTuple):
    """Answer to the question."""

    digit: int

    def __str__(self) -> str:
        return f"output answer: {self.digit}"


def read_act(text: str) -> Choose | LookUp | Answer | None:
    """Return the act in a text, alone or as <action>…</action> after a thought; None if there is none.

    Short forms: `a b` chooses an interval, `frame a` a single frame, `m:ss` looks a time up.
    """
    marked = _ACTION.search(text)
    action = (marked[1] if marked else text).strip()
    digit = read_digit(action.lower().removeprefix("output "))
    if digit is not None:
        return Answer(digit)
    if found := _TIME.fullmatch(action):
        return LookUp(60 * int(found[1]) + int(found[2]))
    if one := _ONE.fullmatch(action):
        ends = (one[1], one[1])
    elif found := _CHOOSE.fullmatch(action):
        ends = (found[1] or found[2], found[3])
    else:
        return None
    thoughts = _INTERVAL.findall(text[: marked.start()]) if marked else []
    return Choose(int(ends[0]), int(ends[1]), not thoughts or thoughts[-1] == ends)


def format_clock(second: int) -> str:
    """Return seconds as m:ss."""
    return f"{second // 60}:{second % 60:02d}"
