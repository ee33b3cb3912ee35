"""Reference scores of a deal (the joy of random play, and of an oracle that knows the users) and a match's figures."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulators.recommender.audience import Reaction
from simulators.recommender.catalogue import Item
from simulators.recommender.service import Deal, Service

PLAYS = 8
"""Number of random plays of a deal with one user; more users need fewer."""
MARGIN = 0.5
"""Minimum gain in joy per user of the oracle over random play; other deals are redrawn."""
SUCCESS = 0.5
"""Minimum score of a success."""

Choose = Callable[[Service], tuple[list[int], frozenset[int]]]
"""Function that chooses a page for a service: (item ids, genres named as the reason)."""


@dataclass(frozen=True)
class Yardstick:
    """Reference scores of a deal: the total joy of all users under the oracle, and under several random plays."""

    oracle: float
    randoms: tuple[float, ...]

    @property
    def random(self) -> float:
        """Mean joy of the random plays."""
        return sum(self.randoms) / len(self.randoms)

    def score(self, joy: float) -> float:
        """Return (joy - random) / (oracle - random), clipped to [0, 1]; 0 if the oracle gains nothing."""
        span = self.oracle - self.random
        return max(0.0, min(1.0, (joy - self.random) / span)) if span > 0 else 0.0


@functools.lru_cache(maxsize=256)  # deals hold their catalogue
def measure(deal: Deal) -> Yardstick:
    """Play a deal with the oracle and at random, seeded by its key. Cached, because a group's matches share a deal."""
    plays = max(2, PLAYS // len(deal.records))
    randoms = tuple(play_deal(deal, make_random_choice(random.Random(deal.key + n))) for n in range(plays))
    return Yardstick(play_deal(deal, choose_best_page), randoms)


def play_deal(deal: Deal, choose: Choose) -> float:
    """Play a whole deal, without questions or searches, with pages from `choose`. Returns the joy of all users."""
    service = Service(deal)
    while not service.is_over:
        slate, named_genres = choose(service)
        service.show(slate, named_genres)
        service.continue_visit()
    return service.total_joy


def choose_best_page(service: Service) -> tuple[list[int], frozenset[int]]:
    """Return the page of highest expected joy given the user's mindset, and its first item's genres as the reason.

    The effect on later pages is ignored. Items that the user would never choose are left out unless no others remain.
    """
    visitor, items = service.visitor, service.items(service.candidates)
    values = {item.id: visitor.compute_click_probability(item) * visitor.compute_joy(item) for item in items}
    order = sorted(items, key=lambda item: (-values[item.id], item.price > visitor.record.cap, visitor.dislikes(item)))
    slate = [item for item in order[: service.deal.limits.slate] if values[item.id] > 0] or order[:1]
    return [item.id for item in slate], frozenset(slate[0].genres if service.deal.limits.explained else ())


def make_random_choice(rng: random.Random) -> Choose:
    """Return a function that chooses full pages of random candidates, without a reason."""

    def choose(service: Service) -> tuple[list[int], frozenset[int]]:
        return rng.sample(service.candidates, service.deal.limits.slate), frozenset()

    return choose


def estimate_floor(references: Iterable[Yardstick]) -> float:
    """Estimate the success rate of random play, scoring each random play against the deal's other ones."""
    hits = plays = 0
    for reference in references:
        for n, joy in enumerate(reference.randoms):
            others = reference.randoms[:n] + reference.randoms[n + 1 :]
            hits += Yardstick(reference.oracle, others).score(joy) >= SUCCESS
            plays += 1
    return hits / plays


@dataclass
class Tally:
    """Counts of a match's pages, clicks, questions and followed instructions."""

    pages: int = 0
    clicks: int = 0
    item_count: int = 0
    genres: int = 0
    """Sum over pages of the number of distinct main genres."""
    questions: int = 0
    instructions: int = 0
    """Number of pages that could follow an instruction; `instructions_followed` counts those that did."""
    instructions_followed: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    """Mindset of the first user before and after each page."""

    def count_page(self, reaction: Reaction, items: Sequence[Item]) -> float:
        """Count a page. Returns its number of distinct main genres divided by its number of items."""
        genres = len({item.genres[0] for item in items})
        self.pages, self.item_count = self.pages + 1, self.item_count + len(items)
        self.clicks, self.genres = self.clicks + len(reaction.clicked), self.genres + genres
        return genres / len(items)

    def count_instruction(self, is_followed: bool) -> None:
        """Count a page that could follow an instruction, and whether it did (`is_followed`)."""
        self.instructions, self.instructions_followed = self.instructions + 1, self.instructions_followed + is_followed

    def figures(self, service: Service, reference: Yardstick) -> dict[str, float | bool | str]:
        """Return the match's figures: score, success, the joy of all users and of random and oracle play, and more.

        The others are rates (`returned`, `kept`, `diversity`), means over users, counts, and the log of the first
        user's `mindset` as JSON.
        """
        score, minds = reference.score(service.total_joy), [visitor.mindset for visitor in service.audience]
        return {
            "score": score,
            "success": score >= SUCCESS,
            "joy": service.total_joy,
            "joy_random": reference.random,
            "joy_oracle": reference.oracle,
            "satisfaction": sum(mind.satisfaction for mind in minds) / len(minds),
            "trust": sum(mind.trust for mind in minds) / len(minds),
            "clicks": self.clicks,
            "pages": self.pages,
            "visits": service.visits,
            "returned": service.returns / max(1, service.visits),
            "instructions": self.instructions,
            "kept": self.instructions_followed / max(1, self.instructions),
            "diversity": self.genres / max(1, self.item_count),
            "asked": self.questions,
            "user": service.audience[0].record.persona,
            "mindset": json.dumps(self.log, separators=(",", ":")),
        }
