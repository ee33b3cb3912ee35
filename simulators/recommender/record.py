"""Hidden properties of a user (taste, price cap, patience, loyalty, persona), and users who behave alike."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulators.person import PERSONAS
from simulators.recommender.catalogue import CAPS

Floats = NDArray[np.float64]
DISLIKED = 0.1
"""Genres whose taste is below this share of the favourite's are disliked: the user never chooses them."""
USER_PERSONAS = ("cooperative", "terse", "forgetful", "impatient")
"""Personas of this simulator. Users tell the truth, so none is mistaken."""
ENDLESS = 10_000.0
"""Patience that no visit can exhaust."""


@dataclass(frozen=True)
class Record:
    """Hidden and fixed properties of one user, drawn before the match."""

    taste: tuple[float, ...]
    """Weight of each genre; sums to 1."""
    cap: int
    """Maximum price that the user pays."""
    patience: float
    """Number of pages without joy that the user tolerates per visit."""
    tires: float
    """Share of a genre's remaining appeal that a clicked item of it removes for a while (fatigue)."""
    loyalty: float
    """Probability of returning on the next day at neutral satisfaction."""
    mood: float
    """Initial mood, in [-.5, .5]."""
    persona: str
    volunteers: bool
    """Whether the user states its favourite genre at once."""
    forgets: tuple[bool, bool, bool]
    """Whether the user cannot tell its genre, price and dislikes when asked."""
    segment: int = 0

    @property
    def entity(self) -> str:
        """Identity of the user (taste and cap) as text, by which train and test splits are disjoint."""
        return f"{','.join(f'{share:.4f}' for share in self.taste)}:{self.cap}"

    @property
    def endurance(self) -> float:
        """Patience at the start of a visit: `patience`, or three quarters of it for an impatient persona."""
        return self.patience * (1 + PERSONAS[self.persona].patience) / 2

    @property
    def affinity(self) -> tuple[float, ...]:
        """Taste by genre, relative to the favourite's; 0 for disliked genres."""
        best = max(self.taste)
        return tuple(round(share / best, 6) if share >= DISLIKED * best else 0.0 for share in self.taste)

    @property
    def favourite(self) -> int:
        """Index of the favourite genre."""
        return max(range(len(self.taste)), key=self.taste.__getitem__)

    @property
    def disliked(self) -> tuple[int, ...]:
        """Indices of the disliked genres, which the user never chooses."""
        return tuple(genre for genre, liking in enumerate(self.affinity) if not liking)

    def as_options(self) -> dict[str, Any]:
        """Return the record as options for `reset`, to be read by `restore_record`."""
        return {"record": asdict(self)}


def draw_record(
    rng: np.random.Generator, taste: Floats, persona: str, segment: int = 0, caps: tuple[int, int] = CAPS
) -> Record:
    """Draw a user with this taste [genres] and a price cap in the range `caps`."""
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
    """Draw a taste [genres] from Dirichlet(concentration), with no entry of exactly 0."""
    taste = rng.dirichlet(concentration) + 1e-6
    return np.asarray(taste / taste.sum(), np.float64)


def restore_record(options: dict[str, Any]) -> Record:
    """Restore a record from the value of the reset option `record` (`Record.as_options`)."""
    return Record(**{**options, "taste": tuple(options["taste"]), "forgets": tuple(options["forgets"])})


def draw_twins(
    record: Record, prices: tuple[float, float], keep_cap: bool, rng: np.random.Generator
) -> tuple[Record, Record]:
    """Draw two users similar to this one whose behaviour and texts a recommender cannot tell apart.

    They differ in the order of two disliked genres; in cap, patience and loyalty; or in the full taste. With `keep_cap`
    they have the same cap, because a free seat may state it unasked. `prices` has the items' lowest and highest price.
    """
    kinds = [_make_contented_twins(record, math.ceil(prices[1]), keep_cap)]
    if len(record.taste) > 2:
        kinds.append(_make_averse_twins(record))
    if prices[0] > 1:
        kinds.append(_make_penniless_twins(record, math.ceil(prices[0]) - 1))
    return kinds[int(len(kinds) * rng.random())]


def _make_averse_twins(record: Record) -> tuple[Record, Record]:
    """Return twins that differ in which of two disliked genres they like less. Neither genre is ever chosen."""
    one, two = sorted(range(len(record.taste)), key=record.taste.__getitem__)[:2]
    tastes = []
    for low, lower in ((0.08, 0.02), (0.02, 0.08)):
        taste = list(record.taste)
        taste[one], taste[two] = low * max(taste), lower * max(taste)
        total = sum(taste)
        tastes.append(tuple(share / total for share in taste))
    return replace(record, taste=tastes[0]), replace(record, taste=tastes[1])


def _make_contented_twins(record: Record, max_price: int, keep_cap: bool) -> tuple[Record, Record]:
    """Return twins with different caps, patience and loyalty, all so high that they have no effect."""
    forgets = (record.forgets[0], True, record.forgets[2])
    one = replace(record, cap=max_price + 1, patience=ENDLESS, loyalty=2.0, forgets=forgets)
    return one, replace(one, cap=max_price + (1 if keep_cap else 9), patience=2 * ENDLESS, loyalty=3.0)


def _make_penniless_twins(record: Record, cap: int) -> tuple[Record, Record]:
    """Return twins who cannot afford any item and dislike no genre, so that they differ only in taste."""
    count = len(record.taste)
    liking = np.arange(count + 1, 2 * count + 1) / sum(range(count + 1, 2 * count + 1))
    one = replace(record, cap=cap, taste=tuple(liking.tolist()), volunteers=False, forgets=(True, *record.forgets[1:]))
    return one, replace(one, taste=one.taste[::-1])
