"""A match of the clinic, as its figures and its yardsticks read it."""

from __future__ import annotations

from typing import Protocol

from simulators.clinic.chart import Chart
from simulators.clinic.fees import Fees
from simulators.clinic.patient import Patient
from simulators.clinic.posterior import Inference
from simulators.clinic.table import Table


class Visit(Protocol):
    """Fields of `simulators.clinic.clinic.Clinic` that the figures and the yardsticks need."""

    seats: tuple[str, ...]
    terse: bool
    table: Table
    symptoms: int
    outcome: Fees
    patient: Patient
    chart: Chart
    budget: int
    tested: list[int]
    questions: int
    tests: int
    repeated: int
    invalid: int
    named: int | None

    @property
    def solver(self) -> Inference:
        """Return the solver of the exact posterior."""
        ...

    @property
    def left(self) -> int:
        """Questions and tests that may still be made."""
        ...
