"""Model of a user: what it chooses on a page and enjoys, how its mindset changes, when it has had enough.

A page of items is taken item by item. With `a` the user's affinity to the item's genres (their mean), `f` its fatigue
of them, q the item's quality, the chance of a click is, in the manner of RecSim's choice models (Ie et al. 2019),

    sigma(6 (a (1 - f) + .3 (q - .5) + .3 mood + .3 (trust - .5) + buzz - .5)),    0 if a = 0 or the price is too high

and a clicked item's joy is a (1 - f) (.4 + .6 q), in [0, 1]. `buzz` is .2 for a friend's find, else 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulators.recommender.catalogue import Item
from simulators.recommender.chance import uniform
from simulators.recommender.record import Record

CLICK, MOOD, RETURN = 0, 1, 3
"""Keys of the random draws of a user."""
LOW = 1.2
"""Patience under which a user says what is wrong."""
ASKING = 0.3
"""Patience that a question takes."""
ANNOYANCE = 0.1
"""Patience that each item takes which is too dear or of a disliked genre."""
SMOOTHING = 0.3
"""The weight of the latest page in a user's satisfaction."""
PLEASED = 0.6
"""The joy of a page that wholly satisfies."""
RECOVERS = 0.9
"""The share of fatigue that is left after a page; half of it after a night."""


@dataclass
class Mindset:
    """Hidden state of mind of a user; it changes with every page."""

    patience: float
    mood: float
    fatigue: list[float]
    trust: float = 0.5
    satisfaction: float = 0.5
    """In [0, 1]: the exponential mean of pages' joys, each as a share of `PLEASED` and cut at 1."""

    def rounded(self) -> dict[str, Any]:
        """Rounded, for a log; of fatigue what there is, by genre."""
        tired = {str(genre): round(each, 2) for genre, each in enumerate(self.fatigue) if each >= 0.005}
        feelings = {name: round(getattr(self, name), 2) for name in ("patience", "mood", "trust", "satisfaction")}
        return {**feelings, "tired": tired}


@dataclass(frozen=True)
class Reaction:
    """Reaction to a page: what was clicked and enjoyed, how much was too dear or disliked."""

    clicked: tuple[int, ...]
    """Items by id."""
    joys: tuple[float, ...]
    dear: int
    """Number of items over its price cap."""
    disliked: int

    @property
    def joy(self) -> float:
        """Return the joy of the whole page."""
        return sum(self.joys)

    @property
    def best(self) -> int | None:
        """The clicked item of the greatest joy."""
        joys = dict(zip(self.clicked, self.joys, strict=True))
        return max(joys, key=joys.__getitem__, default=None)


@dataclass
class Visitor:
    """One user throughout a match."""

    number: int
    record: Record
    key: int
    """Key of all its chance."""
    mindset: Mindset = field(init=False)
    affinity: tuple[float, ...] = field(init=False)
    heard_of: dict[int, int] = field(default_factory=dict)
    """Finds of friends, and whose they are, that were not on a page of its own yet."""
    joy: float = 0.0
    """Joy of all its pages: what a match is judged by."""
    day: int = 0
    here: bool = True
    """Whether it still comes."""

    def __post_init__(self) -> None:
        self.affinity = self.record.affinity
        self.mindset = Mindset(self.record.endurance, self.record.mood, [0.0] * len(self.affinity))

    def interest(self, item: Item) -> float:
        """a (1 - f), in [0, 1]: the affinity to an item's genres that fatigue leaves; 0 of what it never chooses."""
        fatigue = self.mindset.fatigue
        return sum(self.affinity[genre] * (1 - fatigue[genre]) for genre in item.genres) / len(item.genres)

    def chance(self, item: Item) -> float:
        """The chance that it clicks on this item now."""
        interest = self.interest(item)
        if item.price > self.record.cap or not interest:
            return 0.0
        mind, buzz = self.mindset, 0.2 if item.id in self.heard_of else 0.0
        appeal = interest + 0.3 * (item.quality - 0.5) + 0.3 * mind.mood + 0.3 * (mind.trust - 0.5) + buzz - 0.5
        return 1 / (1 + math.exp(-6 * appeal))

    def enjoyment(self, item: Item) -> float:
        """The joy of this item now, once it is clicked."""
        return self.interest(item) * (0.4 + 0.6 * item.quality)

    def dislikes(self, item: Item) -> bool:
        """Return whether all genres of an item are ones that it never chooses."""
        return not any(self.affinity[genre] for genre in item.genres)

    def review(self, items: Sequence[Item], named: frozenset[int] = frozenset()) -> Reaction:
        """Takes a page, on which these genres were named as the reason; its mindset is another afterwards."""
        self.mindset.trust = trusting(self.mindset.trust, named, items)
        taken = [each for each in items if uniform(self.key, CLICK, self.day, each.id) < self.chance(each)]
        reaction = Reaction(
            clicked=tuple(item.id for item in taken),
            joys=tuple(self.enjoyment(item) for item in taken),
            dear=sum(item.price > self.record.cap for item in items),
            disliked=sum(self.dislikes(item) for item in items),
        )
        self._tire(taken)
        self._feel(reaction)
        for item in items:
            self.heard_of.pop(item.id, None)
        return reaction

    def answer(self) -> None:
        """A question was put to it."""
        self.mindset.patience -= ASKING

    def sleep(self) -> None:
        """A night passes; whether it comes back depends on how pleased it was, and its mood on that and on chance."""
        mind = self.mindset
        if uniform(self.key, RETURN, self.day) >= returning(self.record.loyalty, mind.satisfaction):
            self.here = False
        self.day += 1
        mind.fatigue = [each / 2 for each in mind.fatigue]
        drift = 0.3 * (uniform(self.key, MOOD, self.day) - 0.5)
        mind.mood = max(-0.5, min(0.5, 0.6 * mind.mood + 0.4 * (mind.satisfaction - 0.5) + drift))
        mind.patience = self.record.endurance

    def _tire(self, taken: Sequence[Item]) -> None:
        """f <- .9 f, then f <- f + tires (1 - f) for each item taken, shared among its genres."""
        fatigue = [RECOVERS * each for each in self.mindset.fatigue]
        for item in taken:
            for genre in item.genres:
                fatigue[genre] += self.record.tires * (1 - fatigue[genre]) / len(item.genres)
        self.mindset.fatigue = fatigue

    def _feel(self, reaction: Reaction) -> None:
        """A page takes 1 of patience and a little for what annoys; joy gives it back, up to what it came with."""
        mind, joy = self.mindset, reaction.joy
        mind.satisfaction += SMOOTHING * (min(1.0, joy / PLEASED) - mind.satisfaction)
        left = mind.patience - 1 - ANNOYANCE * (reaction.dear + reaction.disliked) + joy
        mind.patience = min(self.record.endurance, left)
        self.joy += joy


def trusting(trust: float, named: frozenset[int], items: Sequence[Item]) -> float:
    """Trust after a page: .05 more where a genre was named that is on it, .2 less where one was that is not."""
    if not named:
        return trust
    there = {genre for item in items for genre in item.genres}
    return max(0.0, min(1.0, trust + (0.05 if named <= there else -0.2)))


def returning(loyalty: float, satisfaction: float) -> float:
    """The chance of coming back tomorrow: loyalty, and as much more or less as satisfaction is from a half."""
    return max(0.02, min(0.98, loyalty + satisfaction - 0.5))
