"""The doctor's chart of a patient: complaint, answers and findings so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulators.clinic.signs import LETTERS
from simulators.clinic.table import Table
from simulators.extractor import Stance

ANSWER_WORDS: Mapping[Stance, str] = {"inform": "yes", "deny": "no", "unknown": "unsure"}
MARKS: Mapping[Stance, str] = {"inform": "+", "deny": "-", "unknown": "?"}
COMPLAINT_MARK = "!"


@dataclass
class Chart:
    """The doctor's knowledge of a patient. Symptoms, tests and findings are indices into the table."""

    complaint: tuple[int, ...] = ()
    """Symptoms that the patient mentioned unasked."""
    answers: dict[int, Stance] = field(default_factory=dict)
    """The patient's stance on each symptom that it talked about, except those of the complaint."""
    findings: dict[int, bool] = field(default_factory=dict)
    """Whether a finding is present, for the findings of the tests made."""
    strain: int = 0
    """Strain on the patient's patience: 1 per new question, 2 per repeated one."""
    has_left: bool = False
    """Whether the patient has lost patience and no longer answers."""

    def knows(self, symptom: int) -> bool:
        """Return True if the patient has mentioned this symptom or answered about it."""
        return symptom in self.answers or symptom in self.complaint

    def add_complaint(self, facts: Mapping[int, Stance]) -> None:
        """Add the patient's unasked statements: symptoms it has to the complaint, all others to the answers."""
        self.complaint += tuple(sign for sign, stance in facts.items() if stance == "inform")
        self.answers |= {sign: stance for sign, stance in facts.items() if stance != "inform"}

    def add_findings(self, test: int, findings: tuple[bool, ...], table: Table) -> str:
        """Add a test's findings to the chart and return them as text. `findings` has all findings of the patient."""
        first, names = table.locate_findings(test)
        self.findings |= {finding: findings[finding] for finding in range(first, first + len(names))}
        return "; ".join(f"{name}: {'yes' if self.findings[first + n] else 'no'}" for n, name in enumerate(names))

    def as_facts(self, table: Table) -> dict[str, Any]:
        """Return the chart by name: {"complaint": symptoms, "answers": yes/no/unsure, "findings": yes/no}."""
        return {
            "complaint": [table.symptom_names[symptom] for symptom in self.complaint],
            "answers": {table.symptom_names[symptom]: ANSWER_WORDS[stance] for symptom, stance in self.answers.items()},
            "findings": {
                table.all_findings[finding]: "yes" if is_present else "no"
                for finding, is_present in self.findings.items()
            },
        }

    def as_marks(self, table: Table) -> str:
        """Return the chart in few characters: a letter and mark per symptom, a digit and marks per test.

        Marks of symptoms are ! (complaint), + (yes), - (no) and ? (unsure); those of findings are + and -.
        """
        parts = [LETTERS[symptom] + COMPLAINT_MARK for symptom in self.complaint]
        parts += [LETTERS[symptom] + MARKS[stance] for symptom, stance in self.answers.items()]
        for test in range(len(table.tests)):
            first, names = table.locate_findings(test)
            if first in self.findings:
                parts.append(f"{test + 1}" + "".join("-+"[self.findings[first + n]] for n in range(len(names))))
        return "".join(parts)
