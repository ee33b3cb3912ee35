"""Base class of games in rounds with simultaneous choices, which stay hidden until all are made. Talk is not hidden."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from games.base import IllegalAct, TextGame, number, whole_number

ROUND = "round"


class SimultaneousGame(TextGame):
    """Base class of games in rounds with hidden choices; a subclass parses a choice in `read` and pays in `settle`.

    Options besides TextGame's: rounds >= 1, their maximum number; continuation from 0 to 1, the probability of another
    round after each (an unknown end: Axelrod 1984). Seats take turns in choosing first.
    """

    def __init__(self, *, rounds: int, continuation: float = 1.0, **options: Any) -> None:
        self.rounds = whole_number("rounds", rounds, least=1)
        self.continuation = number("continuation", continuation)
        if self.continuation > 1:
            raise ValueError(f"continuation must be a number from 0 to 1, not {continuation!r}")
        super().__init__(**options)

    def read(self, seat: str, act: str) -> Any:
        """Parse a seat's act to a choice of any type. Raises IllegalAct if the act is illegal."""
        raise NotImplementedError

    def settle(self, choices: list[Any]) -> None:
        """Pay for a finished round with these choices, in the order of seats, and announce the result."""
        raise NotImplementedError

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Start without finished rounds and choices, and keep `rng` to draw whether another round follows."""
        self._rng = rng
        self.history: list[list[Any]] = []  # the choices of each finished round, in the seats' order
        self.choices: dict[str, Any] = {}

    def public(self) -> dict[str, Any]:
        """Return `round` (from 1), the maximal `rounds`, and `history`: past rounds' choices in the order of seats."""
        round_ = min(len(self.history) + 1, self.rounds)
        return {"round": round_, "rounds": self.rounds, "history": [[*choices] for choices in self.history]}

    def play(self, seat: str, act: str) -> str:
        """Store the seat's choice, which stays hidden, and return "". The last choice of a round settles it."""
        self.choices[seat] = self.read(seat, act)
        if len(self.choices) == len(self.seats):
            choices = [self.choices[name] for name in self.seats]
            self.choices = {}
            self.history.append(choices)
            self.settle(choices)
            if len(self.history) == self.rounds or not self._draw_continuation():
                self.end("rounds", "The match is over.")
        return ""

    def next_seat(self, seat: str) -> str:
        """Return the next seat to choose; each round starts one seat later than the previous one."""
        return self.seats[(len(self.history) + len(self.choices)) % len(self.seats)]

    def _draw_continuation(self) -> bool:
        return self.continuation == 1 or self._rng.random() < self.continuation

    def describe_length(self) -> str:
        """Return a sentence for the rules about the number of rounds."""
        if self.continuation < 1:
            return f"At most {self.rounds} rounds; after each the match goes on with chance {self.continuation:g}."
        return f"{self.rounds} rounds." if self.rounds > 1 else "One round."


def read_number(word: str, most: int, act: str) -> int:
    """Parse the act `WORD n`, ignoring case, to n. Raises IllegalAct unless n is a whole number from 0 to `most`."""
    match = re.fullmatch(rf"\s*{word}\s+(\d{{1,9}})\s*", act, re.ASCII | re.IGNORECASE)
    if not match or int(match[1]) > most:
        raise IllegalAct(f"write {word} and a whole number from 0 to {most}")
    return int(match[1])
