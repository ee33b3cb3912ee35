"""The patient's side of a match: what it is due to say, who words it, and what is read from the words.

With person "render" a text that the extractor does not read as exactly the act due is asked for once more, then the
template stands in; each costs the patient's seat 0.1 (part `reading`). With "free" whatever was said is what the
extractor reads. The seat shares the doctor's `diagnosis` and pays 0.1 for each fact that is not in its record
(`wrong`), for each secret told unasked (`secret`), and where no answer to the question can be read (`unread`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulators.clinic.record import Record
from simulators.clinic.table import Table
from simulators.extractor import Stance
from simulators.person import PERSONAS, Act, Renderings, Speech, listed, worded

FINE = 0.1
OPENINGS = ("Hello doctor. I have {them}.", "Good morning. I have {them} these days.", "Doctor, I have {them}.")
UNWELL = ("Hello doctor. I do not feel well.", "Good morning. Something is wrong with me.", "Doctor, I feel ill.")
SHORT: Mapping[Stance, str] = {"inform": "yes", "deny": "no", "unknown": "unsure"}
"""The shortest answers; in free play what a seat may say is listed as these."""


@dataclass
class Patient:
    """A record, and the state of telling it."""

    record: Record
    rng: np.random.Generator
    """For wordings alone, so that these never change the record."""
    person: Speech
    table: Table
    renderings: Renderings = field(default_factory=Renderings)
    counts: dict[str, int] = field(default_factory=lambda: {"wrong": 0, "secret": 0, "unread": 0})
    """Counts of a freely played seat, by kind of fine."""
    due: int | None = None
    """The symptom that was asked about and is not answered yet."""
    template: str = ""

    def opening(self) -> str:
        """Return the patient's first words: all that it complains of, at once."""
        things = [self.table.signs[sign].it for sign in self.record.complaint]
        wordings = OPENINGS if things else UNWELL
        return wordings[self.rng.integers(len(wordings))].format(them=listed(things))

    def ask(self, sign: int) -> None:
        """It is asked about a symptom."""
        self.due = sign
        manner = PERSONAS[self.record.persona].manner
        self.template = worded(self.act, self.table.signs[sign].it, manner, self.rng)

    @property
    def act(self) -> Act:
        """The answer that its record gives to what it was asked."""
        assert self.due is not None
        return Act(self.record.answers[self.due], self.table.asked[self.due])

    def facts(self) -> dict[str, Any]:
        """Return what its seat sees: what it is due to say, as an act and in words; freely played, the record too."""
        answers = self.record.answers
        due = {"say": "", "template": "", "answer": ""}
        if self.due is not None:
            due = {"say": str(self.act), "template": self.template, "answer": SHORT[answers[self.due]]}
        if self.person == "render":
            return due
        by_stance: dict[Stance, list[str]] = {"inform": [], "deny": [], "unknown": []}
        for sign, stance in zip(self.table.signs, answers, strict=True):
            by_stance[stance].append(sign.name)
        secret = [sign.name for sign in self.table.signs if sign.secret]
        record = {"have": by_stance["inform"], "unsure": by_stance["unknown"], "secret": secret}
        return due | record

    def hear(self, text: str) -> tuple[str, dict[int, Stance], dict[str, float]] | None:
        """Return what the doctor reads of a seat's text, the facts in it, and its cost to the seat; None: ask again."""
        assert self.due is not None
        asked, words = self.table.asked[self.due], self.table.words
        if self.person == "render":
            heard = self.renderings.settled(text, self.template, lambda said: words.understand(said, asked))
            if heard is None:
                return None
            fine = {} if heard == text else {"reading": -FINE}
            return heard, {self.due: self.record.answers[self.due]}, fine
        index = {name: number for number, name in enumerate(self.table.asked)}
        facts = {index[topic]: stance for topic, stance in words.read(text, asked).items() if topic in index}
        fines = {
            "wrong": sum(self.record.answers[sign] != stance for sign, stance in facts.items()),
            "secret": sum(self.table.signs[sign].secret and sign != self.due for sign in facts),
            "unread": int(self.due not in facts),
        }
        for name, count in fines.items():
            self.counts[name] += count
        facts.setdefault(self.due, "unknown")
        return text, facts, {name: -FINE * count for name, count in fines.items() if count}

    def figures(self) -> dict[str, float | bool | str]:
        """Return how well the patient's seat, where there is one, carried the facts."""
        if self.person == "script":
            return {}
        if self.person == "render":
            return self.renderings.figures()
        return {f"told_{name}": count for name, count in self.counts.items()}
