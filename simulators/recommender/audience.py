"""Model of a user: clicks and joy on a page, changes of the mindset, and loss of patience.

The user decides about each item of a page separately. Let a be its affinity to a genre, f its fatigue of the genre, i
the mean of a (1 - f) over the item's genres (its interest), and q the item's quality. The click probability follows
RecSim's choice models (Ie et al. 2019):

    sigma(6 (i + .3 (q - .5) + .3 mood + .3 (trust - .5) + buzz - .5)),    0 if i = 0 or the price is too high

The joy of a clicked item is i (.4 + .6 q), in [0, 1]. `buzz` is .2 for an item that a friend recommended, else 0.
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
"""Keys of a user's random draws."""
LOW_PATIENCE = 1.2
"""Patience below which a user gives an instruction."""
QUESTION_COST = 0.3
"""Patience lost by answering a question."""
ANNOYANCE = 0.1
"""Patience lost for each item that is too expensive or of a disliked genre."""
SMOOTHING = 0.3
"""Weight of the latest page in a user's satisfaction."""
FULL_JOY = 0.6
"""Joy of a page that satisfies the user fully."""
FATIGUE_DECAY = 0.9
"""Share of fatigue left after a page. A night halves fatigue."""


@dataclass
class Mindset:
    """Hidden, changing state of a user: patience, mood, fatigue by genre, trust and satisfaction."""

    patience: float
    mood: float
    fatigue: list[float]
    trust: float = 0.5
    satisfaction: float = 0.5
    """Exponential moving average of the pages' joys, each divided by `FULL_JOY` and capped at 1."""

    def round_for_log(self) -> dict[str, Any]:
        """Return the mindset, rounded for the log. "tired" has the non-zero fatigue by genre index."""
        fatigue = {str(genre): round(each, 2) for genre, each in enumerate(self.fatigue) if each >= 0.005}
        feelings = {name: round(getattr(self, name), 2) for name in ("patience", "mood", "trust", "satisfaction")}
        return {**feelings, "tired": fatigue}


@dataclass(frozen=True)
class Reaction:
    """A user's reaction to one page: clicked items, the joy of each, and the number of annoying items."""

    clicked: tuple[int, ...]
    """Ids of the clicked items."""
    joys: tuple[float, ...]
    """Joy of each clicked item, in the order of `clicked`."""
    too_expensive: int
    """Number of items above the user's price cap."""
    disliked: int
    """Number of items all of whose genres the user dislikes."""

    @property
    def joy(self) -> float:
        """Total joy of the page's clicked items."""
        return sum(self.joys)

    @property
    def best(self) -> int | None:
        """Id of the clicked item that gave the most joy; None without clicks."""
        joys = dict(zip(self.clicked, self.joys, strict=True))
        return max(joys, key=joys.__getitem__, default=None)


@dataclass
class Visitor:
    """Simulated user during a match: its fixed record, its mindset, and its reactions to pages."""

    number: int
    record: Record
    key: int
    """Key of the user's random draws."""
    mindset: Mindset = field(init=False)
    affinity: tuple[float, ...] = field(init=False)
    tips: dict[int, int] = field(default_factory=dict)
    """Recommending friend's number by item id, for items that this user has not been shown since."""
    joy: float = 0.0
    """Total joy over all pages, from which the score is computed."""
    day: int = 0
    still_visits: bool = True
    """False once the user has decided not to return on another day."""

    def __post_init__(self) -> None:
        self.affinity = self.record.affinity
        self.mindset = Mindset(self.record.endurance, self.record.mood, [0.0] * len(self.affinity))

    def compute_interest(self, item: Item) -> float:
        """Return the user's interest in an item, in [0, 1]: the mean of affinity * (1 - fatigue) over its genres."""
        fatigue = self.mindset.fatigue
        return sum(self.affinity[genre] * (1 - fatigue[genre]) for genre in item.genres) / len(item.genres)

    def compute_click_probability(self, item: Item) -> float:
        """Return the probability of a click on an item now; 0 if it is too expensive or disliked."""
        interest = self.compute_interest(item)
        if item.price > self.record.cap or not interest:
            return 0.0
        mind, buzz = self.mindset, 0.2 if item.id in self.tips else 0.0
        appeal = interest + 0.3 * (item.quality - 0.5) + 0.3 * mind.mood + 0.3 * (mind.trust - 0.5) + buzz - 0.5
        return 1 / (1 + math.exp(-6 * appeal))

    def compute_joy(self, item: Item) -> float:
        """Return the joy, in [0, 1], that a click on an item would give now."""
        return self.compute_interest(item) * (0.4 + 0.6 * item.quality)

    def dislikes(self, item: Item) -> bool:
        """Return True if the user dislikes every genre of the item and therefore never clicks on it."""
        return not any(self.affinity[genre] for genre in item.genres)

    def react_to_page(self, items: Sequence[Item], named_genres: frozenset[int] = frozenset()) -> Reaction:
        """React to a page: draw clicks, update the mindset and total joy, and return the reaction.

        `named_genres`, the genres that the page's explanation names, change trust. Friends' recommendations of the
        shown items are used up.
        """
        self.mindset.trust = update_trust(self.mindset.trust, named_genres, items)
        clicked = [
            each for each in items if uniform(self.key, CLICK, self.day, each.id) < self.compute_click_probability(each)
        ]
        reaction = Reaction(
            clicked=tuple(item.id for item in clicked),
            joys=tuple(self.compute_joy(item) for item in clicked),
            too_expensive=sum(item.price > self.record.cap for item in items),
            disliked=sum(self.dislikes(item) for item in items),
        )
        self._update_fatigue(clicked)
        self._update_feelings(reaction)
        for item in items:
            self.tips.pop(item.id, None)
        return reaction

    def charge_question(self) -> None:
        """Reduce the user's patience by the cost of a question, `QUESTION_COST`."""
        self.mindset.patience -= QUESTION_COST

    def end_day(self) -> None:
        """End the user's day: draw whether it returns (`still_visits`), halve fatigue, update mood, reset patience."""
        mind = self.mindset
        if uniform(self.key, RETURN, self.day) >= compute_return_probability(self.record.loyalty, mind.satisfaction):
            self.still_visits = False
        self.day += 1
        mind.fatigue = [each / 2 for each in mind.fatigue]
        drift = 0.3 * (uniform(self.key, MOOD, self.day) - 0.5)
        mind.mood = max(-0.5, min(0.5, 0.6 * mind.mood + 0.4 * (mind.satisfaction - 0.5) + drift))
        mind.patience = self.record.endurance

    def _update_fatigue(self, clicked: Sequence[Item]) -> None:
        """Update fatigue: f <- .9 f, then f <- f + tires (1 - f) / genres for each genre of each clicked item."""
        fatigue = [FATIGUE_DECAY * each for each in self.mindset.fatigue]
        for item in clicked:
            for genre in item.genres:
                fatigue[genre] += self.record.tires * (1 - fatigue[genre]) / len(item.genres)
        self.mindset.fatigue = fatigue

    def _update_feelings(self, reaction: Reaction) -> None:
        """Update satisfaction, total joy and patience.

        A page costs patience 1 and each annoying item `ANNOYANCE`; joy restores as much.
        """
        mind, joy = self.mindset, reaction.joy
        mind.satisfaction += SMOOTHING * (min(1.0, joy / FULL_JOY) - mind.satisfaction)
        remaining = mind.patience - 1 - ANNOYANCE * (reaction.too_expensive + reaction.disliked) + joy
        mind.patience = min(self.record.endurance, remaining)
        self.joy += joy


def update_trust(trust: float, named_genres: frozenset[int], items: Sequence[Item]) -> float:
    """Return the trust after a page: unchanged without named genres, +.05 if all of them are on it, else -.2."""
    if not named_genres:
        return trust
    shown_genres = {genre for item in items for genre in item.genres}
    return max(0.0, min(1.0, trust + (0.05 if named_genres <= shown_genres else -0.2)))


def compute_return_probability(loyalty: float, satisfaction: float) -> float:
    """Return the probability that the user returns tomorrow: loyalty + satisfaction - .5, clipped to [.02, .98]."""
    return max(0.02, min(0.98, loyalty + satisfaction - 0.5))
