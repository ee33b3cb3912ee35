"""A user of the recommender: what it likes, can pay, puts up with, and whether it comes back. All of it hidden."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulators.person import PERSONAS
from simulators.recommender.catalogue import CAPS

Floats = NDArray[np.float64]
DISLIKED = 0.1
"""Genres whose taste is less than this share of the favourite's are never chosen."""
MANNERS = ("cooperative", "terse", "forgetful", "impatient")
"""The personas that fit: what a user says is true, so none is mistaken."""


@dataclass(frozen=True)
class Record:
    """All that is hidden of one user."""

    taste: tuple[float, ...]
    """By genre; sums to 1."""
    cap: int
    """It buys nothing over this price."""
    patience: float
    """Pages without joy that it bears in a visit."""
    tires: float
    """Part of a genre's appeal that one item of it takes away for a while."""
    loyalty: float
    """The chance of coming back tomorrow, if it is neither pleased nor displeased."""
    mood: float
    """In [-.5, .5], at first."""
    persona: str
    volunteers: bool
    """Whether it says at once what it likes best."""
    forgets: tuple[bool, bool, bool]
    """Whether it cannot tell its genre, its price, and what it dislikes, when asked."""
    segment: int = 0

    @property
    def entity(self) -> str:
        """The user that this is, whatever its manner: train and test share none."""
        return f"{','.join(f'{share:.4f}' for share in self.taste)}:{self.cap}"

    @property
    def endurance(self) -> float:
        """Its patience as its persona has it: who is impatient has three quarters of it."""
        return self.patience * (1 + PERSONAS[self.persona].patience) / 2

    @property
    def affinity(self) -> tuple[float, ...]:
        """Taste by genre, as a share of the favourite's, which is 1; 0 where that is under `DISLIKED`."""
        best = max(self.taste)
        return tuple(round(share / best, 6) if share >= DISLIKED * best else 0.0 for share in self.taste)

    @property
    def favourite(self) -> int:
        """The genre that it likes best."""
        return max(range(len(self.taste)), key=self.taste.__getitem__)

    @property
    def disliked(self) -> tuple[int, ...]:
        """The genres of which it chooses nothing."""
        return tuple(genre for genre, liking in enumerate(self.affinity) if not liking)

    def as_options(self) -> dict[str, Any]:
        """For `reset(options=…)`."""
        return {"record": asdict(self)}


def draw_record(
    rng: np.random.Generator, taste: Floats, persona: str, segment: int = 0, caps: tuple[int, int] = CAPS
) -> Record:
    """A user with this taste [genres] and a price cap within these; its persona says what it forgets and volunteers."""
    kind = PERSONAS[persona]
    forgotten = rng.random(3) < kind.forgets
    return Record(
        taste=tuple(float(share) for share in taste),
        cap=int(rng.integers(caps[0], caps[1] + 1)),
        patience=float(rng.uniform(3.0, 5.0)),
        tires=float(rng.uniform(0.1, 0.3)),
        loyalty=float(rng.uniform(0.5, 0.8)),
        mood=float(rng.uniform(-0.2, 0.2)),
        persona=persona,
        volunteers=bool(rng.random() < kind.volunteers),
        forgets=(bool(forgotten[0]), bool(forgotten[1]), bool(forgotten[2])),
        segment=segment,
    )


def draw_taste(rng: np.random.Generator, concentration: Floats) -> Floats:
    """A taste [genres] from Dirichlet(concentration), none of it quite 0."""
    taste = rng.dirichlet(concentration) + 1e-6
    return np.asarray(taste / taste.sum(), np.float64)


def record_from(options: dict[str, Any]) -> Record:
    """The record that `as_options` gave."""
    return Record(**{**options, "taste": tuple(options["taste"]), "forgets": tuple(options["forgets"])})
