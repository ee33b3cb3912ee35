"""Acts of the game `frames`, and their parser."""

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
    """Whether this is the last interval in the thought, or the thought has none."""

    def __str__(self) -> str:
        return f"choose frames between {self.first} and {self.last}"


class LookUp(NamedTuple):
    """Request for the number of the frame at a second of the clip."""

    second: int

    def __str__(self) -> str:
        return f"get frame number at time {format_clock(self.second)}"


class Answer(NamedTuple):
    """Answer to the question: a digit."""

    digit: int

    def __str__(self) -> str:
        return f"output answer: {self.digit}"


def read_act(text: str) -> Choose | LookUp | Answer | None:
    """Return the act in a text, alone or as <action>…</action> after a thought; None if there is none.

    Short forms: `a b` chooses an interval, `frame a` a single frame, and `m:ss` looks up a time.
    """
    tagged = _ACTION.search(text)
    action = (tagged[1] if tagged else text).strip()
    digit = read_digit(action.lower().removeprefix("output "))
    if digit is not None:
        return Answer(digit)
    if found := _TIME.fullmatch(action):
        return LookUp(60 * int(found[1]) + int(found[2]))
    if single := _ONE.fullmatch(action):
        ends = (single[1], single[1])
    elif found := _CHOOSE.fullmatch(action):
        ends = (found[1] or found[2], found[3])
    else:
        return None
    thoughts = _INTERVAL.findall(text[: tagged.start()]) if tagged else []
    return Choose(int(ends[0]), int(ends[1]), not thoughts or thoughts[-1] == ends)


def format_clock(second: int) -> str:
    """Return seconds as m:ss."""
    return f"{second // 60}:{second % 60:02d}"
