"""Hidden record of a customer, and how its goals came out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulators.desk.goals import Goal
from simulators.desk.people import Person, draw_postcode
from simulators.person import PERSONAS

SLIP = 0.25
"""Chance that a customer gets its own postcode or an order's number wrong at first, times its persona's factor."""


@dataclass
class Outcome:
    """State of one goal: what was told, denied and written."""

    told: dict[str, str | None] = field(default_factory=dict)
    denied: frozenset[str] | None = None
    """The reasons, at least one, of the latest denial that gave any; None: it was not denied."""
    written: bool = False
    closed: bool = False

    def as_policy_wants(self, goal: Goal) -> bool:
        """Return whether it came out as the policy wants, so far as that was said."""
        if goal.reasons:
            return self.denied is not None and self.denied <= goal.reasons
        return self.denied is None and self.told == dict(goal.facts)


@dataclass(frozen=True)
class Record:
    """Hidden record of a customer; drawn once, before a word is said."""

    person: Person
    persona: str
    goals: tuple[Goal, ...]
    volunteers: bool
    """Whether it says at once who it is."""
    forgets_email: bool
    forgets_numbers: tuple[bool, ...]
    wrong_postcode: str
    """Wrong postcode that it says first, "" where it gets it right."""
    wrong_numbers: tuple[str, ...]
    insists: bool
    """Whether it asks again when it is denied something."""


def draw_record(
    rng: np.random.Generator, person: Person, persona: str, goals: tuple[Goal, ...], free: list[str]
) -> Record:
    """Draw how this persona goes about these goals; `free`: numbers of no order or booking, one for each goal."""
    kind = PERSONAS[persona]
    slips = min(1.0, SLIP * kind.slips) if kind.slips > 1 else 0.0
    wrong = rng.random(len(goals)) < slips
    return Record(
        person, persona, goals,
        volunteers=bool(rng.random() < kind.volunteers),
        forgets_email=bool(rng.random() < kind.forgets),
        forgets_numbers=tuple(map(bool, rng.random(len(goals)) < kind.forgets)),
        wrong_postcode=draw_postcode(rng) if rng.random() < slips else "",
        wrong_numbers=tuple(number if slip else "" for number, slip in zip(free, wrong, strict=True)),
        insists=bool(rng.random() < slips),
    )  # fmt: skip
