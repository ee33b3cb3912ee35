"""Recommendations that a doctor gives with the diagnosis, as in DoctorAgent-RL.

Each disease has one right recommendation, a number from 1. Diseases may share a recommendation, so a wrong diagnosis
can come with the right one. They are drawn from a seed: simulation only, never advice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from games.base import IllegalAct

WORDS = re.compile(r"(.*?)(?<!\s)\s+RECOMMEND\s+(\d+)\s*", re.IGNORECASE | re.DOTALL | re.ASCII)
MAX_RECOMMENDATIONS = 9


class Advice:
    """The right recommendation of each disease, one of `count`. With `count` 0 the clinic asks for none."""

    def __init__(self, count: int, names: Sequence[str], seed: int, terse: bool) -> None:
        self.count, self.names, self.terse = count, names, terse
        unordered = np.resize(np.arange(count), len(names)) if count else np.zeros(len(names), np.int64)
        self.right: tuple[int, ...] = tuple(np.random.default_rng([seed, count]).permutation(unordered).tolist())

    def split(self, act: str) -> tuple[str, int | None]:
        """Split an act into (act without recommendation, index of the recommendation, or None if it has none).

        Raises IllegalAct for a number that is out of range.
        """
        if not self.count:
            return act, None
        if self.terse:
            plain = "".join(act.split())
            diagnosis, number = (plain[:-1], plain[-1:]) if len(plain) == 3 else (plain, "")
        else:
            match = WORDS.fullmatch(act)
            diagnosis, number = (match[1], match[2]) if match else (act, "")
        if not number:
            return act, None
        if not (number.isascii() and number.isdigit() and len(number) < 3 and 1 <= int(number) <= self.count):
            raise IllegalAct(f"recommendations are numbered from 1 to {self.count}")
        return diagnosis, int(number) - 1

    def check_act(self, kind: str, index: int | None) -> None:
        """Raise IllegalAct unless a diagnosis (kind "d") has a recommendation and no other act has one."""
        if self.count and (kind == "d") != (index is not None):
            raise IllegalAct("a diagnosis needs a recommendation, and other acts have none")

    def format_suffix(self, index: int | None) -> str:
        """Return the text that adds this recommendation to a diagnosis; "" for None or if the clinic asks for none."""
        if not self.count or index is None:
            return ""
        return str(index + 1) if self.terse else f" RECOMMEND {index + 1}"

    def rules(self, pay: float) -> str:
        """Return the rules about recommendations, with their reward `pay`; "" in terse mode or if there are none."""
        if not self.count or self.terse:
            return ""
        groups = [[n for n, right in zip(self.names, self.right, strict=True) if right == i] for i in range(self.count)]
        needs = "; ".join(f"{i + 1} for {', '.join(each)}" for i, each in enumerate(groups))
        ends = "A diagnosis ends with a recommendation, as in DIAGNOSE disease RECOMMEND 1"
        return f"\n{ends}; the right one pays {pay:g}: {needs}."
