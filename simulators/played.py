"""Persons played by a policy. It gets a record and a goal and decides what to say; the simulator checks each text.

A text may state false facts (wrong), disclose facts too early (leaked) or omit facts that the other side needs
(withheld). Such a text may be requested again. Texts with faults that are passed on all the same are counted; above a
limit the match fails because of its person, and no seat is scored. The simulators' extractors find the facts; words
outside their vocabularies are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from games.base import choice, to_one_line, whole_number
from games.contracts import ILLEGAL, MAX_TURNS, PERSON
from simulators.base import Simulator
from simulators.person import SPEECHES, Speech

FINE = 0.1
"""Price of each wrong and each leaked fact, for the person's own seat."""
LEAVING = re.compile(r"\b(?:good\W?bye|bye)\b", re.IGNORECASE)


class Faults(NamedTuple):
    """Faults of a person's text: the facts concerned, by kind of fault."""

    wrong: Sequence[str] = ()
    leaked: Sequence[str] = ()
    withheld: Sequence[str] = ()

    def describe(self) -> str:
        """Return the faults in words, for the person to read when it is asked again."""
        complaints = [
            f"{text}: {to_one_line(', '.join(facts)).rstrip('.')}."
            for text, facts in (("Not so", self.wrong), ("Not to be told now", self.leaked), ("Say", self.withheld))
            if facts
        ]
        return " ".join(complaints)


@dataclass
class Conduct:
    """Counts of a played person's texts and their faults.

    `wrong`, `leaked` and `withheld` count texts with at least one fault of that kind.
    """

    texts: int = 0
    words: int = 0
    wrong: int = 0
    leaked: int = 0
    withheld: int = 0
    again: int = 0
    """Rejected texts, which were requested again."""
    faults: int = 0
    """Texts with faults that were passed on."""
    tries: int = 0
    """Repeated requests for the current statement."""

    def count(self, text: str, checked: Faults, retries: int) -> bool:
        """Count a text and its faults. Returns True if it is passed on, False if another text is requested.

        A statement is requested again at most `retries` times.
        """
        self.texts, self.words = self.texts + 1, self.words + len(text.split())
        self.wrong, self.leaked = self.wrong + bool(checked.wrong), self.leaked + bool(checked.leaked)
        self.withheld += bool(checked.withheld)
        if any(checked) and self.tries < retries:
            self.again, self.tries = self.again + 1, self.tries + 1
            return False
        self.faults, self.tries = self.faults + any(map(bool, checked)), 0
        return True

    def figures(self) -> dict[str, float | bool | str]:
        """Return the counts for the report, as `person_texts`, `person_words`, `person_wrong` and so on."""
        return {f"person_{name}": count for name, count in vars(self).items() if name != "tries"}


class PersonGame(Simulator):
    """Base class of simulators with a person, who may have a seat of its own.

    Options in addition to Simulator's:
    person: "script" (no seat; templates speak), "render" (the person's seat words each statement; a text that says
    anything else is requested once more, then replaced), "free" (the script says what is due, the seat says what it
    likes, and shares the reward) or "played" (the seat also opens the talk, chooses what to say, and leaves).
    person_retries: how often a played person is asked again after a text with faults. person_faults: how many of its
    texts with faults are passed on before the match fails.

    A subclass defines `person_seat`. For "played" it implements `check_person`, calls `admit_text` for each text of
    the seat, and gives the seat its record, its goal and `template`, the text of the script, in `private`. Reward parts
    `wrong` and `secret` are the fines of a played person; its seat has no share in the others' pay.
    """

    person_seat: ClassVar[str]
    speeches: ClassVar[tuple[Speech, ...]] = SPEECHES
    """Values of `person` that the simulator supports."""

    def __init__(
        self, *, person: Speech = "script", person_retries: int = 1, person_faults: int = 8, **options: Any
    ) -> None:
        self.person = choice("person", person, *self.speeches)
        self.person_retries = whole_number("person_retries", person_retries, 0, 100)
        self.person_faults = whole_number("person_faults", person_faults, 0, MAX_TURNS)
        if person != "script":
            self.seats = (*self.seats, self.person_seat)
        super().__init__(**options)

    @property
    def is_played(self) -> bool:
        """True if the person's seat decides what to say."""
        return self.person == "played"

    def check_person(self, text: str) -> Faults:
        """Return the faults of a played person's text and change nothing. Subclasses with "played" implement it."""
        raise NotImplementedError

    def admit_text(self, text: str) -> bool:
        """Count, check and fine a played person's text; return True if it takes effect and reaches the other side.

        Otherwise the seat is told the faults and moves again, or the match has ended because there were too many.
        """
        checked = self.check_person(text)
        has_passed = self.conduct.count(text, checked, self.person_retries)
        for part, facts in (("wrong", checked.wrong), ("secret", checked.leaked)):
            if facts:
                self.pay(self.person_seat, part, -FINE * len(facts))
        if self.conduct.faults > self.person_faults:
            self._fail()
        elif not has_passed:
            self.tell(checked.describe(), self.person_seat)
        return has_passed and not self.ended

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a match as Simulator does, with the person's counts at 0."""
        self.conduct = Conduct()
        super().reset(seed, options)

    def report(self) -> dict[str, float | bool | str]:
        """Return Simulator's report and, for a played person, the counts of its texts."""
        return {**super().report(), **(self.conduct.figures() if self.is_played else {})}

    def _refuse(self, seat: str, action: object, reason: str) -> None:
        """Refuse an illegal act as other games do. One by a played person ends the match, and no seat is scored."""
        if not self.is_played or seat != self.person_seat:
            super()._refuse(seat, action, reason)
            return
        self.invalid += 1
        self._valid[seat] = False
        self.pay(seat, ILLEGAL, -self.penalty)
        self._fail()

    def _fail(self) -> None:
        self.end(PERSON, f"The match does not count: the {self.person_seat} does not keep to its record.")
