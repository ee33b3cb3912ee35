"""Text-free core of a match: users visit by day, and each is served pages until its patience ends.

The text game and the reference plays of its score use this class on the same deal.
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
"""Key of the random draws of candidates."""
FINDS = 2
"""Maximum searches per page."""
FINDS_OF_FRIENDS = 2
"""Maximum candidates of a page that friends recommended."""
TRIES = 200


@dataclass(frozen=True)
class Limits:
    """Sizes of a match: days, pages of a visit, items of a page (`slate`), and candidates to choose from."""

    days: int
    pages: int
    slate: int
    candidates: int
    explained: bool = True
    """Whether text may accompany a page."""


@dataclass(frozen=True)
class Deal:
    """Everything that is fixed before a match is played: catalogue, sizes, users, friendships and random draws."""

    shelf: Shelf
    limits: Limits
    records: tuple[Record, ...]
    friends: Friends
    key: int
    """Key of all its random draws."""

    def with_manner(self, persona: str) -> Deal:
        """Return the same deal with all users of this persona."""
        return replace(self, records=tuple(replace(record, persona=persona) for record in self.records))

    def __deepcopy__(self, memo: object) -> Deal:
        """Return the same object: a deal is immutable."""
        return self


@dataclass
class Service:
    """State of a match without texts. Call `show` or `ask`, each followed by `leave_or_stay`, until `over`."""

    deal: Deal
    audience: list[Visitor] = field(init=False)
    charts: list[Chart] = field(init=False)
    at: int = 0
    """Number of the current user."""
    day: int = 0
    """Number of ended days; `page` counts those shown in this visit, `finds` the searches on this page."""
    page: int = 0
    visits: int = 0
    returns: int = 0
    """Visits after which the user would return, if there were a next day."""
    finds: int = 0
    candidates: tuple[int, ...] = ()
    """Ids of the items offered for the current page."""
    stars: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(sum, count) of the stars of each item."""
    told: list[tuple[int, int, int]] = field(default_factory=list)
    """Word of mouth: (item, teller, friend)."""
    tips: int = 0
    """Clicks on friends' recommendations."""
    over: bool = False

    def __post_init__(self) -> None:
        records, key = self.deal.records, self.deal.key
        self.audience = [Visitor(n, record, int(2**53 * uniform(key, n))) for n, record in enumerate(records)]
        self.charts = [Chart() for _ in records]
        self._draw_candidates()

    @property
    def visitor(self) -> Visitor:
        """The user of the current visit."""
        return self.audience[self.at]

    @property
    def chart(self) -> Chart:
        """The recommender's observations of the current user."""
        return self.charts[self.at]

    @property
    def worth(self) -> float:
        """Total joy of all users so far."""
        return sum(visitor.joy for visitor in self.audience)

    def items(self, numbers: Sequence[int]) -> list[Item]:
        """Return the catalogue's items of these ids, in the given order."""
        return [self.deal.shelf.catalogue.items[number] for number in numbers]

    def show(self, slate: list[int], named: frozenset[int] = frozenset()) -> Reaction:
        """Show a page to the user and return the reaction. Call `leave_or_stay` next.

        `named` are genres that the explanation names. Records clicks and stars, spreads recommendations to friends, and
        draws new candidates.
        """
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
        self._draw_candidates()
        return reaction

    def ask(self) -> None:
        """Charge the current user's patience for a question. Call `leave_or_stay` next."""
        self.visitor.answer()

    def find(self, words: str) -> None:
        """Replace candidates by the unseen items nearest to these words, keep their number, and count the search.

        If too few are found, earlier candidates fill the page.
        """
        self.finds += 1
        most, seen = self.deal.limits.candidates, self.chart.seen
        found = [item for item in self.deal.shelf.find(words, most + len(seen)) if item not in seen]
        self.candidates = tuple(dict.fromkeys([*found, *self.candidates]))[:most]

    def leave_or_stay(self) -> bool:
        """Return True if the visit continues. Otherwise end the user's day and start the next visit, or set `over`."""
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
            self._draw_candidates()

    def _draw_candidates(self) -> None:
        """Draw new candidates: friends' tips, half of the rest similar to the last enjoyed item, others random."""
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
    """Return the rating in stars, 1 to 5, for a joy in [0, 1]."""
    return 1 + min(4, int(5 * joy))
