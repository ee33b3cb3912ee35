"""What a game may offer beyond its rules, as protocols: who asks for it finds out by `isinstance`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class BestResponse(Protocol):
    """A game that knows what the best play against a given opponent is worth."""

    def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
        """What the best play of `seat` earns on this deal, on average over chance. The game was just reset.

        All other seats answer a view with these chances of their acts. NaN where it is not known with these options.
        """
        ...


@runtime_checkable
class Tells(Protocol):
    """A game that says to people, in plain words, what players are told as facts and acts.

    Each seat is told what it may know and no more, until the match has ended.
    """

    def introduction(self, seat: str) -> str:
        """What the match is about, and how to type an act, with an example; the same throughout a match."""
        ...

    def in_words(self, seat: str) -> str:
        """What lies before this seat, which is to move."""
        ...

    def act_in_words(self, act: str) -> str:
        """What another seat does by this act, as the game read it; "" where it has no words for that."""
        ...

    def epilogue(self, people: Sequence[str]) -> tuple[Sequence[Sequence[str]], str]:
        """Of an ended match, for the people at these seats: a table, its heads first, and what it comes to."""
        ...


@runtime_checkable
class Pictures(Protocol):
    """A game whose messages may hold images."""

    def picture(self, hash: str) -> bytes:
        """The content of an image that a message of this match named; KeyError for any other."""
        ...


# -- which match it is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchId:
    """Which match of a run this is, as data; `str` prints it and `parse` reads that back.

    Printed as 0001-0003 (iteration 1, deal 3), 0001-0003-r2 (its second repetition after failures), 0001-0003-b4 (its
    branch at turn 4), 0001-0003-b4-r1-b6 (a branch of that branch's first repetition). ValueError for numbers below 0,
    a parting turn without a parent or the other way round, or a parent of another deal.
    """

    iteration: int
    """That played it. Outside a run: which of the lineups did."""
    deal: int
    """Number of the match among those dealt in its iteration, from 0."""
    attempt: int = 0
    """How often it was played again after a failure."""
    parent: MatchId | None = None
    """The match it is a branch of; None where it is none."""
    turn: int | None = None
    """The first turn that is its own and not its parent's; None where it has no parent."""

    def __post_init__(self) -> None:
        if min(self.iteration, self.deal, self.attempt, self.turn or 0) < 0:
            raise ValueError(f"a match's iteration, deal, attempt and turn are 0 or more, not {self!r}")
        if (self.parent is None) != (self.turn is None):
            raise ValueError("a match has a parent and the turn where it parts from it, or neither")
        if self.parent and (self.parent.iteration, self.parent.deal) != (self.iteration, self.deal):
            raise ValueError(f"a branch is of its parent's iteration and deal, not of {self.parent}")

    def __str__(self) -> str:
        head = f"{self.iteration:04d}-{self.deal:04d}" if self.parent is None else f"{self.parent}-b{self.turn}"
        return f"{head}-r{self.attempt}" if self.attempt else head

    @classmethod
    def parse(cls, text: str) -> MatchId:
        """The identity that is printed so; ValueError for any other text."""
        if not _PRINTED.fullmatch(text):
            raise ValueError(f"{text[:80]!r} is no match id: write one like 0001-0003 or 0001-0003-b4")
        iteration, deal, *rest = text.split("-")
        match = cls(int(iteration), int(deal))
        for part in rest:
            number = int(part[1:])
            match = replace(match, attempt=number) if part[0] == "r" else match.branch(number)
        return match

    def branch(self, turn: int) -> MatchId:
        """The match that parts from this one at a turn."""
        return MatchId(self.iteration, self.deal, parent=self, turn=turn)

    def line(self) -> list[MatchId]:
        """The matches that it comes from, the one without a parent first, and itself."""
        return [*(self.parent.line() if self.parent else ()), self]

    @property
    def planned(self) -> MatchId:
        """The same match at its first attempt."""
        return replace(self, attempt=0) if self.attempt else self


_NUMBER = r"(?:\d{4}|[1-9]\d{4,8})"
_ATTEMPT = r"(?:-r[1-9]\d{0,8})?"
_PRINTED = re.compile(rf"{_NUMBER}-{_NUMBER}{_ATTEMPT}(?:-b(?:0|[1-9]\d{{0,8}}){_ATTEMPT}){{0,64}}", re.ASCII)
