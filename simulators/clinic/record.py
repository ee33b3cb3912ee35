"""A patient's hidden record: disease, symptoms, answers to questions, and complaint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from simulators.clinic.table import Table
from simulators.extractor import Stance
from simulators.person import PERSONAS


@dataclass(frozen=True)
class Record:
    """Hidden facts about the patient of one match. Indices refer to the table."""

    disease: int
    symptoms: tuple[bool, ...]
    """Whether the patient has each symptom; `findings` says the same of each test's findings."""
    findings: tuple[bool, ...]
    answers: tuple[Stance, ...]
    """Answer to a question about each symptom: right, wrong, or unsure."""
    complaint: tuple[int, ...]
    """Symptoms mentioned unasked."""
    persona: str

    @property
    def entity(self) -> str:
        """Identity of the patient (disease and signs) as text, by which train and test splits are disjoint."""
        signs = "".join("1" if sign else "0" for sign in (*self.symptoms, *self.findings))
        return f"{self.disease}:{signs}"

    def as_options(self) -> dict[str, Any]:
        """Return the record as options for `reset`, to be read by `restore_record`."""
        return {"record": asdict(self)}


def draw_record(rng: np.random.Generator, table: Table, persona: str, slip: float) -> Record:
    """Draw a patient from the table. Symptoms are independent given the disease, so that naive Bayes is exact.

    The persona sets the probabilities of forgetting a symptom, and of mentioning a present, remembered and non-secret
    one unasked. Answers about other symptoms are wrong with probability `slip` times the persona's factor.
    """
    kind, count = PERSONAS[persona], int(table.symptoms.shape[1])
    disease = int(rng.choice(len(table.prior), p=table.prior))
    has_symptom = rng.random(count) < table.symptoms[disease]
    findings = rng.random(int(table.findings.shape[1])) < table.findings[disease]
    forgotten = rng.random(count) < kind.forgets
    wrong = rng.random(count) < min(1.0, slip * kind.slips)
    open_signs = np.array([not sign.secret for sign in table.signs])
    volunteered = has_symptom & ~forgotten & open_signs & (rng.random(count) < kind.volunteers)
    says = np.where(volunteered, has_symptom, has_symptom ^ wrong)
    stances: tuple[Stance, ...] = ("deny", "inform", "unknown")
    answers = tuple(stances[2 if forgotten[n] else int(says[n])] for n in range(count))
    complaint = tuple(int(index) for index in np.flatnonzero(volunteered))
    return Record(disease, tuple(map(bool, has_symptom)), tuple(map(bool, findings)), answers, complaint, persona)


def make_twin(record: Record, disease: int) -> Record:
    """Return a patient with this disease and opposite forgotten symptoms, but the same answers and findings."""
    symptoms = [
        has_symptom != (stance == "unknown")
        for has_symptom, stance in zip(record.symptoms, record.answers, strict=True)
    ]
    return replace(record, disease=disease, symptoms=tuple(symptoms))


def restore_record(options: dict[str, Any]) -> Record:
    """Restore a record from the value of the reset option `record` (`Record.as_options`)."""
    return Record(**options)
