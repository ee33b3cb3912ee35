"""Statements of a user: answers to questions, and one true instruction per visit at low patience (RecoWorld)."""

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
    """A user's statement: it wants "more" or "less" of a genre, or only items "under" a price."""

    kind: Kind
    value: int
    """Index of the genre, or the maximum price."""

    def fits(self, item: Item) -> bool:
        """Return True if an item has the wanted genre, lacks the unwanted one, or costs at most the price."""
        if self.kind == "under":
            return item.price <= self.value
        return (self.value in item.genres) == (self.kind == "more")

    def is_satisfied_by(self, slate: Sequence[Item]) -> bool:
        """Return True if a page follows the wish: it has an item of a wanted genre, or no unwanted item."""
        return any(map(self.fits, slate)) if self.kind == "more" else all(map(self.fits, slate))


def choose_instruction(visitor: Visitor, slate: Sequence[Item]) -> Wish:
    """Return a user's wish about a page: its price cap if an item costs more, else less of a disliked genre on it.

    Of several disliked genres, it is the most frequent, at ties the first. Without either, the user wishes for more of
    its current favourite. The statement is always true and reveals one hidden property.
    """
    if any(item.price > visitor.record.cap for item in slate):
        return Wish("under", visitor.record.cap)
    disliked = Counter(genre for item in slate for genre in item.genres if not visitor.affinity[genre])
    if disliked:
        return Wish("less", min(disliked, key=lambda genre: (-disliked[genre], genre)))
    return Wish("more", find_current_favourite(visitor))


def find_current_favourite(visitor: Visitor) -> int:
    """Return the index of the genre that the user likes best at its current fatigue."""
    fatigue = visitor.mindset.fatigue
    return max(range(len(fatigue)), key=lambda genre: visitor.affinity[genre] * (1 - fatigue[genre]))


TOPICS = ("genre", "price", "dislikes")
"""Topics of questions."""
TOPIC_OF: Mapping[Kind, str] = {"more": "genre", "under": "price", "less": "dislikes"}
"""Topic of the question that a kind of wish answers."""


def answer_question(visitor: Visitor, topic: str) -> Wish | None:
    """Return the user's true answer to a question on a topic: its favourite, its price cap, or a disliked genre.

    Returns None if the user has forgotten the topic, or dislikes no genre.
    """
    index = TOPICS.index(topic)
    if visitor.record.forgets[index]:
        return None
    if topic == "genre":
        return Wish("more", visitor.record.favourite)
    if topic == "price":
        return Wish("under", visitor.record.cap)
    disliked = visitor.record.disliked
    return Wish("less", disliked[visitor.number % len(disliked)]) if disliked else None
