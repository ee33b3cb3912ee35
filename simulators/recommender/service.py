"""One match without words: users come by day, each is served pages of candidates until it has had enough.

The text game, and the plays that its score is held against, are the same service of the same deal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from simulators.recommender.audience import Reaction, Visitor
from simulators.recommender.catalogue import Item
from simulators.recommender.chance import uniform
from simulators.recommender.chart import Chart
from simulators.recommender.index import Shelf
from simulators.recommender.population import ENJOYED, Friends, word_of_mouth
from simulators.recommender.record import Record

STOCK = 20
"""Key of the chance of what is in stock."""
FINDS = 2
"""Searches that a page may take."""
FINDS_OF_FRIENDS = 2
"""Most candidates of a page that are finds of friends."""
TRIES = 200


@dataclass(frozen=True)
class Limits:
    """The sizes of a match."""

    days: int
    pages: int
    slate: int
    candidates: int
    explained: bool = True
    """Whether words may go with a page."""


@dataclass(frozen=True)
class Deal:
    """All that is given in a match before it is played."""

    shelf: Shelf
    limits: Limits
    records: tuple[Record, ...]
    friends: Friends
    key: int
    """Key of all chance in it."""

    def with_manner(self, persona: str) -> Deal:
        """The same, all users being of this persona."""
        return replace(self, records=tuple(replace(record, persona=persona) for record in self.records))

    def __deepcopy__(self, memo: object) -> Deal:
        """Itself: nothing in it changes."""
        return self


@dataclass
class Service:
    """State of a match at some point."""

    deal: Deal
    audience: list[Visitor] = field(init=False)
    charts: list[Chart] = field(init=False)
    at: int = 0
    """The number of the user who is served."""
    day: int = 0
    page: int = 0
    visits: int = 0
    returns: int = 0
    """After how many of them the user would come back, were there a next day."""
    finds: int = 0
    candidates: tuple[int, ...] = ()
    stars: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By item: the sum and the number of the stars that it was given."""
    told: list[tuple[int, int, int]] = field(default_factory=list)
    """Word of mouth: an item, who enjoyed it, and the friend that was told."""
    tips: int = 0
    """Friends' finds that were clicked."""
    over: bool = False

    def __post_init__(self) -> None:
        records, key = self.deal.records, self.deal.key
        self.audience = [Visitor(n, record, int(2**53 * uniform(key, n))) for n, record in enumerate(records)]
        self.charts = [Chart() for _ in records]
        self._restock()

    @property
    def visitor(self) -> Visitor:
        """Return the user who is served."""
        return self.audience[self.at]

    @property
    def chart(self) -> Chart:
        """Return what is known of the user who is served."""
        return self.charts[self.at]

    @property
    def worth(self) -> float:
        """The joy of all users, so far."""
        return sum(visitor.joy for visitor in self.audience)

    def items(self, numbers: Sequence[int]) -> list[Item]:
        """These items of the catalogue."""
        return [self.deal.shelf.catalogue.items[number] for number in numbers]

    def show(self, slate: list[int], named: frozenset[int] = frozenset()) -> Reaction:
        """The user takes a page, in whatever order it was written; `leave_or_stay` has to follow."""
        visitor, tips = self.visitor, {*self.visitor.heard_of}
        reaction = visitor.review(self.items(sorted(slate)), named)
        self.chart.note(slate, reaction.clicked, reaction.best)
        self.tips += len(tips.intersection(reaction.clicked))
        for item, joy in zip(reaction.clicked, reaction.joys, strict=True):
            total, count = self.stars.get(item, (0, 0))
            self.stars[item] = total + stars_for(joy), count + 1
            if joy >= ENJOYED:
                friends = word_of_mouth(visitor, item, self.audience, self.deal.friends)
                self.told += [(item, visitor.number, friend) for friend in friends]
        self.page += 1
        self._restock()
        return reaction

    def ask(self) -> None:
        """The user answers a question; `leave_or_stay` has to follow."""
        self.visitor.answer()

    def find(self, words: str) -> None:
        """The page's candidates become those nearest to these words, of what the user has not seen; as many as before.

        Where too few are left to find, some of those before stay.
        """
        self.finds += 1
        most, seen = self.deal.limits.candidates, self.chart.seen
        found = [item for item in self.deal.shelf.find(words, most + len(seen)) if item not in seen]
        self.candidates = tuple(dict.fromkeys([*found, *self.candidates]))[:most]

    def leave_or_stay(self) -> bool:
        """Return whether the visit goes on; else the user sleeps on it, and the next one comes."""
        if self.visitor.mindset.patience > 0 and self.page < self.deal.limits.pages:
            return True
        self.visits += 1
        self.visitor.sleep()
        self.returns += self.visitor.here
        self._next_visit()
        return False

    def _next_visit(self) -> None:
        self.page = 0
        waiting = range(self.at + 1, len(self.audience))
        self.at = next((n for n in waiting if self.audience[n].here), -1)
        if self.at < 0:
            self.day += 1
            self.at = next((n for n, visitor in enumerate(self.audience) if visitor.here), -1)
        self.over = self.at < 0 or self.day >= self.deal.limits.days
        if self.over:
            self.at, self.candidates = max(self.at, 0), ()
        else:
            self._restock()

    def _restock(self) -> None:
        """New candidates: friends' finds, half of the rest like what was clicked last, the others at random."""
        self.finds = 0
        most, seen = self.deal.limits.candidates, self.chart.seen
        chosen = [item for item in self.visitor.heard_of if item not in seen][:FINDS_OF_FRIENDS]
        if self.chart.last is not None:
            like = [item for item in self.deal.shelf.like(self.chart.last) if item not in seen and item not in chosen]
            chosen += like[: (most - len(chosen)) // 2]
        size, where = len(self.deal.shelf.catalogue.items), (self.at, self.day, self.page)
        for attempt in range(TRIES):
            if len(chosen) >= most:
                break
            item = int(size * uniform(self.deal.key, STOCK, *where, attempt))
            if item not in chosen and (item not in seen or 2 * attempt > TRIES):
                chosen.append(item)
        if len(chosen) < most:
            chosen += [item for item in range(size) if item not in chosen][: most - len(chosen)]
        self.candidates = tuple(chosen)


def stars_for(joy: float) -> int:
    """From one to five, for a joy in [0, 1]."""
    return 1 + min(4, int(5 * joy))
