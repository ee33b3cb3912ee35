"""Worth of a deal to a player who knows the user, and to chance: the ends of the scale that a score is read on."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulators.recommender.service import Deal, Service

PLAYS = 8
"""Plays at random of a deal with one user; with several, fewer say as much."""
MARGIN = 0.5
"""Least gain of joy a user that knowing the users must be worth: other deals are drawn again."""
SUCCESS = 0.5
"""The score that counts as a success."""

Choose = Callable[[Service], tuple[list[int], frozenset[int]]]
"""From a service to a slate, and the genres that are named as its reason."""


@dataclass(frozen=True)
class Yardstick:
    """Joys in a deal: of the player who knows the users, and of random plays."""

    oracle: float
    randoms: tuple[float, ...]

    @property
    def random(self) -> float:
        """Return the mean joy of random plays."""
        return sum(self.randoms) / len(self.randoms)

    def score(self, worth: float) -> float:
        """(worth - random) / (oracle - random), cut to [0, 1]; 0 where there is nothing to gain over chance."""
        span = self.oracle - self.random
        return max(0.0, min(1.0, (worth - self.random) / span)) if span > 0 else 0.0


@functools.lru_cache(maxsize=256)  # deals hold their catalogue
def measure(deal: Deal) -> Yardstick:
    """Plays a deal through by who knows and by chance, which comes from the deal's key; matches of a group share it."""
    plays = max(2, PLAYS // len(deal.records))
    randoms = tuple(worth(deal, at_random(random.Random(deal.key + n))) for n in range(plays))
    return Yardstick(worth(deal, knowing), randoms)


def worth(deal: Deal, choose: Choose) -> float:
    """The joy of all users where every page is chosen so."""
    service = Service(deal)
    while not service.over:
        slate, named = choose(service)
        service.show(slate, named)
        service.leave_or_stay()
    return service.worth


def knowing(service: Service) -> tuple[list[int], frozenset[int]]:
    """The most joy to be expected now, by who knows the user's mind but not its dice; the first item's genres named.

    It looks no further than the page. What the user would never take is left away, unless nothing is left.
    """
    visitor, items = service.visitor, service.items(service.candidates)
    worths = {item.id: visitor.chance(item) * visitor.enjoyment(item) for item in items}
    order = sorted(items, key=lambda item: (-worths[item.id], item.price > visitor.record.cap, visitor.dislikes(item)))
    slate = [item for item in order[: service.deal.limits.slate] if worths[item.id] > 0] or order[:1]
    return [item.id for item in slate], frozenset(slate[0].genres if service.deal.limits.explained else ())


def at_random(rng: random.Random) -> Choose:
    """Any items, and no reason."""

    def choose(service: Service) -> tuple[list[int], frozenset[int]]:
        return rng.sample(service.candidates, service.deal.limits.slate), frozenset()

    return choose


def floor(sticks: Iterable[Yardstick]) -> float:
    """The share of plays at random that would count as a success, each against the others of its deal."""
    hits = plays = 0
    for stick in sticks:
        for n, joy in enumerate(stick.randoms):
            others = stick.randoms[:n] + stick.randoms[n + 1 :]
            hits += Yardstick(stick.oracle, others).score(joy) >= SUCCESS
            plays += 1
    return hits / plays
