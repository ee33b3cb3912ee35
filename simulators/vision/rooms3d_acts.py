"""Turns of `rooms3d` as text: one to three acts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simulators.vision.house_paths import ANGLES, LENGTHS, STOP, Act

MAX_ACTS = 3
"""Maximum acts of a turn."""
ACTS = (
    *(Act("go", one) for one in LENGTHS), *(Act(way, one) for way in ("left", "right") for one in ANGLES), Act(STOP),
)  # fmt: skip
_KNOWN = {str(act): act for act in ACTS}
_SEPARATOR = re.compile(r"[\s,;.]+")


def read_acts(text: str) -> list[Act]:
    """Return the one to three acts that a text names; [] for another text."""
    words = [word for word in _SEPARATOR.split(text.lower().replace("forward", "go")) if word]
    acts = list[Act]()
    while words and len(acts) < MAX_ACTS:
        count = 1 if words[0] == STOP else 2
        name, words = " ".join(words[:count]), words[count:]
        if name not in _KNOWN:
            return []
        acts.append(_KNOWN[name])
    return [] if words else acts


def format_acts(acts: Sequence[Act]) -> str:
    """Return acts as text."""
    return " ".join(map(str, acts))
