"""A patient: what is the matter, what it has, what it believes to have, and what it tells unasked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from simulators.clinic.table import Table
from simulators.extractor import Stance
from simulators.person import PERSONAS


@dataclass(frozen=True)
class Record:
    """All that is hidden of one match; indices are those of the table."""

    disease: int
    symptoms: tuple[bool, ...]
    findings: tuple[bool, ...]
    answers: tuple[Stance, ...]
    """For each symptom what the patient says when asked: the truth, a slip, or that it cannot tell."""
    complaint: tuple[int, ...]
    """The symptoms that it tells unasked."""
    persona: str

    @property
    def entity(self) -> str:
        """The patient that this is, whatever its mood: train and test share none."""
        signs = "".join("1" if sign else "0" for sign in (*self.symptoms, *self.findings))
        return f"{self.disease}:{signs}"

    def as_options(self) -> dict[str, Any]:
        """For `reset(options=…)`."""
        return {"record": asdict(self)}


def draw_record(rng: np.random.Generator, table: Table, persona: str, slip: float) -> Record:
    """A patient of the table; every symptom is drawn on its own, so that naive Bayes is exact.

    A symptom is forgotten with the persona's chance, whether it is there or not. One that is there, is not forgotten
    and is no secret is said unasked with the persona's chance. Of the rest the patient is wrong with chance `slip`
    times the persona's factor.
    """
    kind, count = PERSONAS[persona], int(table.symptoms.shape[1])
    disease = int(rng.choice(len(table.prior), p=table.prior))
    has = rng.random(count) < table.symptoms[disease]
    findings = rng.random(int(table.findings.shape[1])) < table.findings[disease]
    forgotten = rng.random(count) < kind.forgets
    wrong = rng.random(count) < min(1.0, slip * kind.slips)
    open_signs = np.array([not sign.secret for sign in table.signs])
    volunteered = has & ~forgotten & open_signs & (rng.random(count) < kind.volunteers)
    says = np.where(volunteered, has, has ^ wrong)
    stances: tuple[Stance, ...] = ("deny", "inform", "unknown")
    answers = tuple(stances[2 if forgotten[n] else int(says[n])] for n in range(count))
    complaint = tuple(int(index) for index in np.flatnonzero(volunteered))
    return Record(disease, tuple(map(bool, has)), tuple(map(bool, findings)), answers, complaint, persona)


def twin_of(record: Record, disease: int) -> Record:
    """A patient who says and shows the same, but has another disease, and the contrary of what it cannot tell."""
    has = [yes != (said == "unknown") for yes, said in zip(record.symptoms, record.answers, strict=True)]
    return replace(record, disease=disease, symptoms=tuple(has))


def record_from(options: dict[str, Any]) -> Record:
    """The record that `as_options` gave."""
    return Record(**options)
