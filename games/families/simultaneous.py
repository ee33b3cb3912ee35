"""Rounds in which all seats choose at once: a choice stays hidden until everybody has chosen; talk is heard at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from games.base import IllegalAct, TextGame, number, whole_number

ROUND = "round"


class SimultaneousGame(TextGame):
    """A subclass reads a choice (`read`) and settles a round (`settle`).

    Options besides TextGame's: rounds >= 1, the most there are; continuation from 0 to 1, the chance that another
    round follows (an unknown end: Axelrod 1984). Each round another seat is the first to choose.
    """

    def __init__(self, *, rounds: int, continuation: float = 1.0, **options: Any) -> None:
        self.rounds = whole_number("rounds", rounds, least=1)
        self.continuation = number("continuation", continuation)
        if self.continuation > 1:
            raise ValueError(f"continuation must be a number from 0 to 1, not {continuation!r}")
        super().__init__(**options)

    def read(self, seat: str, act: str) -> Any:
        """The choice that the act makes; or raises IllegalAct."""
        raise NotImplementedError

    def settle(self, choices: list[Any]) -> None:
        """Pays a round in which the seats, in order, made these choices, and tells how it went."""
        raise NotImplementedError

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """No round has been played, nothing is chosen."""
        self._rng = rng
        self.history: list[list[Any]] = []  # the choices of each finished round, in the seats' order
        self.chosen: dict[str, Any] = {}

    def public(self) -> dict[str, Any]:
        """The round, from 1; how many there may be; the choices of the finished ones, in the seats' order."""
        now = min(len(self.history) + 1, self.rounds)
        return {"round": now, "rounds": self.rounds, "history": [[*choices] for choices in self.history]}

    def private(self, seat: str) -> dict[str, Any]:
        """Nothing."""
        return {}

    def play(self, seat: str, act: str) -> str:
        """Keeps the choice to itself; the last one of a round opens all."""
        self.chosen[seat] = self.read(seat, act)
        if len(self.chosen) == len(self.seats):
            choices = [self.chosen[name] for name in self.seats]
            self.chosen = {}
            self.history.append(choices)
            self.settle(choices)
            if len(self.history) == self.rounds or not self._goes_on():
                self.end("rounds", "The match is over.")
        return ""

    def next_seat(self, seat: str) -> str:
        """The seat that is next in order; each round begins one seat later than the one before."""
        return self.seats[(len(self.history) + len(self.chosen)) % len(self.seats)]

    def _goes_on(self) -> bool:
        return self.continuation == 1 or self._rng.random() < self.continuation

    def length(self) -> str:
        """For the rules: how many rounds there are."""
        if self.continuation < 1:
            return f"At most {self.rounds} rounds; after each the match goes on with chance {self.continuation:g}."
        return f"{self.rounds} rounds." if self.rounds > 1 else "One round."


def read_number(word: str, most: int, act: str) -> int:
    """The n of the act `WORD n`, from 0 to `most`; or raises IllegalAct."""
    match = re.fullmatch(rf"\s*{word}\s+(\d{{1,9}})\s*", act, re.ASCII | re.IGNORECASE)
    if not match or int(match[1]) > most:
        raise IllegalAct(f"write {word} and a whole number from 0 to {most}")
    return int(match[1])
