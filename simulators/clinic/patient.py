"""The patient's side of a match: the due answer, its wording, and the facts parsed from it.

With person "render", the seat words the due answer. If the extractor parses its text as anything else, another text is
requested once, and then the template replaces it; each costs the seat 0.1 (part `reading`). With "free", the parsed
facts count. The seat shares the doctor's `diagnosis`, and pays 0.1 for each fact that contradicts its record (`wrong`),
for each unasked secret (`secret`), and for a text that does not answer the question (`unread`). With "played", the seat
also speaks first and may leave, and pays only the fines of `simulators.played`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from games.families.book import fold
from simulators.clinic.chart import Chart
from simulators.clinic.record import Record
from simulators.clinic.table import Table
from simulators.extractor import Stance
from simulators.person import PERSONAS, Act, Renderings, Speech, join_words, word_act
from simulators.played import FINE, Faults

OPENINGS = ("Hello doctor. I have {them}.", "Good morning. I have {them} these days.", "Doctor, I have {them}.")
UNWELL = ("Hello doctor. I do not feel well.", "Good morning. Something is wrong with me.", "Doctor, I feel ill.")
SHORT: Mapping[Stance, str] = {"inform": "yes", "deny": "no", "unknown": "unsure"}
"""Shortest answers, the listed acts of a free or played seat."""


@dataclass
class Patient:
    """Patient of one match: its hidden record, the unanswered question, and checks of its seat's texts."""

    record: Record
    rng: np.random.Generator
    """Generator for wordings only, so that they never change the record."""
    person: Speech
    table: Table
    renderings: Renderings = field(default_factory=Renderings)
    counts: dict[str, int] = field(default_factory=lambda: {"wrong": 0, "secret": 0, "unread": 0})
    """Number of fines of a free seat, by kind."""
    due: int | None = None
    """Symptom of the unanswered question."""
    template: str = ""
    """Scripted answer to that question."""

    def draw_opening(self) -> str:
        """Draw a wording of the patient's first words, which mention every symptom of the complaint."""
        things = [self.table.signs[sign].phrase for sign in self.record.complaint]
        wordings = OPENINGS if things else UNWELL
        return wordings[self.rng.integers(len(wordings))].format(them=join_words(things))

    def ask(self, sign: int) -> None:
        """Ask about a symptom: set it as due, and draw a wording of the record's answer as the template."""
        self.due = sign
        manner = PERSONAS[self.record.persona].manner
        self.template = word_act(self.act, self.table.signs[sign].phrase, manner, self.rng)

    @property
    def act(self) -> Act:
        """Speech act of the record's answer to the current question."""
        assert self.due is not None
        return Act(self.record.answers[self.due], self.table.symptom_names[self.due])

    def as_facts(self) -> dict[str, Any]:
        """Return the patient seat's facts: due act ("say"), "template" and short "answer", each "" without a question.

        A free or played seat also sees the symptoms that it has, is unsure about, or should keep secret ("have",
        "unsure", "secret"). A played one also sees which of "have" it "tells" unasked and "hides", and its opening as
        the first template.
        """
        answers = self.record.answers
        due = {"say": "", "template": self.template, "answer": ""}
        if self.due is not None:
            due = {"say": str(self.act), "template": self.template, "answer": SHORT[answers[self.due]]}
        if self.person == "render":
            return due
        by_stance: dict[Stance, list[str]] = {"inform": [], "deny": [], "unknown": []}
        for sign, stance in zip(self.table.signs, answers, strict=True):
            by_stance[stance].append(sign.name)
        secret = [sign.name for sign in self.table.signs if sign.secret]
        have = by_stance["inform"]
        record = {"have": have, "unsure": by_stance["unknown"], "secret": secret}
        if self.person == "played":
            record |= {
                "tells": [name for name in have if name not in secret],
                "hides": [n for n in have if n in secret],
            }
        return due | record

    def hear(self, text: str) -> tuple[str, dict[int, Stance], dict[str, float]] | None:
        """Check the seat's text. Returns (text for the doctor, stance by symptom index, fines by reward part).

        With person "render", returns None for the first wrong text, to request another, and replaces the second by the
        template. For "free" and "played", the parsed stances count, and an open question is answered "unknown". A
        played patient is fined elsewhere (`PersonGame.admit_text`).
        """
        if self.person == "played":
            facts = self._read(text)
            return text, facts if self.due is None else {self.due: "unknown", **facts}, {}
        assert self.due is not None
        topic, words = self.table.symptom_names[self.due], self.table.words
        if self.person == "render":
            utterance = self.renderings.choose_text(
                text, self.template, lambda candidate: words.understand(candidate, topic)
            )
            if utterance is None:
                return None
            fine = {} if utterance == text else {"reading": -FINE}
            return utterance, {self.due: self.record.answers[self.due]}, fine
        facts = self._read(text)
        fines = {
            "wrong": sum(self.record.answers[sign] != stance for sign, stance in facts.items()),
            "secret": sum(self.table.signs[sign].secret and sign != self.due for sign in facts),
            "unread": int(self.due not in facts),
        }
        for name, count in fines.items():
            self.counts[name] += count
        facts.setdefault(self.due, "unknown")
        return text, facts, {name: -FINE * count for name, count in fines.items() if count}

    def check(self, text: str, chart: Chart) -> Faults:
        """Return the faults of a played patient's text.

        Wrong are stances that contradict its record, and names of diseases. Secret symptoms are leaked unless they are
        asked about or in the chart. The answer is withheld if none to the question can be parsed.
        """
        facts, signs, words = self._read(text), self.table.signs, f" {fold(text)} "
        wrong = [signs[sign].name for sign, stance in facts.items() if self.record.answers[sign] != stance]
        wrong += [name for name in self.table.names if f" {fold(name)} " in words]
        leaked = [sign for sign in facts if signs[sign].secret and sign != self.due and not chart.knows(sign)]
        withheld = [] if self.due is None or self.due in facts else [f"yes, no or unsure to {signs[self.due].name}"]
        return Faults(wrong, [signs[sign].name for sign in leaked], withheld)

    def _read(self, text: str) -> dict[int, Stance]:
        """Parse a text's stances by symptom index. A bare yes or no answers the question."""
        asked_topic = "" if self.due is None else self.table.symptom_names[self.due]
        index = {name: number for number, name in enumerate(self.table.symptom_names)}
        return {
            index[topic]: stance for topic, stance in self.table.words.read(text, asked_topic).items() if topic in index
        }

    def figures(self) -> dict[str, float | bool | str]:
        """Return counts of the seat's texts: results of checks for "render", fines for "free", {} otherwise."""
        if self.person in ("script", "played"):
            return {}
        if self.person == "render":
            return self.renderings.figures()
        return {f"told_{name}": count for name, count in self.counts.items()}
