"""Wishes that a user says: one instruction a visit, true, when its patience is low (RecoWorld), or answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from simulators.recommender.audience import Visitor
from simulators.recommender.catalogue import Item

Kind = Literal["more", "less", "under"]


@dataclass(frozen=True)
class Wish:
    """More of a genre, none of a genre, or nothing over a price."""

    kind: Kind
    what: int
    """A genre's index, or a price."""

    def fits(self, item: Item) -> bool:
        """Return whether an item is what is wished for, or not what is unwanted."""
        if self.kind == "under":
            return item.price <= self.what
        return (self.what in item.genres) == (self.kind == "more")

    def satisfied_by(self, slate: Sequence[Item]) -> bool:
        """Return whether a page keeps to it: some of what is wished for; nothing of what is not wanted."""
        return any(map(self.fits, slate)) if self.kind == "more" else all(map(self.fits, slate))


def instruction(visitor: Visitor, slate: Sequence[Item]) -> Wish:
    """Return the wish about a page's worst: prices over the cap, else a genre it never chooses, else none of its best.

    Always true, and one hidden constraint: the cap, a dislike, or the genre that it would like most now.
    """
    if any(item.price > visitor.record.cap for item in slate):
        return Wish("under", visitor.record.cap)
    disliked = Counter(genre for item in slate for genre in item.genres if not visitor.affinity[genre])
    if disliked:
        return Wish("less", min(disliked, key=lambda genre: (-disliked[genre], genre)))
    return Wish("more", likes_now(visitor))


def likes_now(visitor: Visitor) -> int:
    """The genre that it would like most now, as fatigue has it."""
    fatigue = visitor.mindset.fatigue
    return max(range(len(fatigue)), key=lambda genre: visitor.affinity[genre] * (1 - fatigue[genre]))


TOPICS = ("genre", "price", "dislikes")
"""Topics that may be asked about."""
TOPIC_OF: Mapping[Kind, str] = {"more": "genre", "under": "price", "less": "dislikes"}
"""Topic that has to be asked about for a wish of each kind."""


def answer(visitor: Visitor, topic: str) -> Wish | None:
    """The true answer to a question; None where the user cannot tell, or dislikes nothing."""
    which = TOPICS.index(topic)
    if visitor.record.forgets[which]:
        return None
    if topic == "genre":
        return Wish("more", visitor.record.favourite)
    if topic == "price":
        return Wish("under", visitor.record.cap)
    worst = visitor.record.disliked
    return Wish("less", worst[visitor.number % len(worst)]) if worst else None
