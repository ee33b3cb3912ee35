"""A customer's hidden record, and the progress of its goals."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulators.desk.goals import Goal
from simulators.desk.people import Person, draw_postcode
from simulators.person import PERSONAS

SLIP = 0.25
"""Probability that a customer first states a wrong postcode or number, before the persona's factor."""


@dataclass
class Outcome:
    """Progress of one goal of the customer: facts told, denial, and whether its write is done."""

    told_facts: dict[str, str | None] = field(default_factory=dict)
    """Requested facts that were told, by name; None if the agent stated several values."""
    denial_reasons: frozenset[str] | None = None
    """Reasons of the latest denial that gave any; None if there was none."""
    is_written: bool = False
    is_closed: bool = False

    def follows_policy(self, goal: Goal) -> bool:
        """Return True if a forbidden goal was denied for true reasons, or an allowed one told its facts undenied."""
        if goal.reasons:
            return self.denial_reasons is not None and self.denial_reasons <= goal.reasons
        return self.denial_reasons is None and self.told_facts == dict(goal.facts)


@dataclass(frozen=True)
class Record:
    """Hidden properties of a customer, drawn before the match: identity, goals and errors."""

    person: Person
    persona: str
    goals: tuple[Goal, ...]
    volunteers: bool
    """Whether it identifies itself at once."""
    forgets_email: bool
    forgets_numbers: tuple[bool, ...]
    wrong_postcode: str
    """Wrong postcode that it states first; "" if none."""
    wrong_numbers: tuple[str, ...]
    """Wrong number stated first, by goal; "" if none."""
    insists: bool
    """Whether it asks again after a denial."""


def draw_record(
    rng: np.random.Generator, person: Person, persona: str, goals: tuple[Goal, ...], unused_numbers: list[str]
) -> Record:
    """Draw the facts that a customer volunteers, forgets and misstates.

    `unused_numbers` has a wrong number for each goal.
    """
    kind = PERSONAS[persona]
    slips = min(1.0, SLIP * kind.slips) if kind.slips > 1 else 0.0
    wrong = rng.random(len(goals)) < slips
    return Record(
        person, persona, goals,
        volunteers=bool(rng.random() < kind.volunteers),
        forgets_email=bool(rng.random() < kind.forgets),
        forgets_numbers=tuple(map(bool, rng.random(len(goals)) < kind.forgets)),
        wrong_postcode=draw_postcode(rng) if rng.random() < slips else "",
        wrong_numbers=tuple(number if slip else "" for number, slip in zip(unused_numbers, wrong, strict=True)),
        insists=bool(rng.random() < slips),
    )  # fmt: skip
