"""Core of a match, without texts: users visit day by day, and each is shown pages until its patience runs out.

The text game and the reference plays of its score run this core on the same deal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from simulators.recommender.audience import Reaction, Visitor
from simulators.recommender.catalogue import Item
from simulators.recommender.chance import uniform
from simulators.recommender.history import UserHistory
from simulators.recommender.index import Shelf
from simulators.recommender.population import MIN_TIP_JOY, Friends, spread_word
from simulators.recommender.record import Record

STOCK = 20
"""Key of the random draws of candidates."""
MAX_FINDS = 2
"""Maximum searches per page."""
MAX_TIPS = 2
"""Maximum candidates of a page that friends recommended."""
MAX_DRAWS = 200
"""Maximum random draws of candidates for a page. The second half of them may repeat items that the user has seen."""


@dataclass(frozen=True)
class Limits:
    """Sizes of a match: days, pages per visit, items per page (`slate`), and candidates to choose a page from."""

    days: int
    pages: int
    slate: int
    candidates: int
    explained: bool = True
    """Whether an explanation may accompany a page."""


@dataclass(frozen=True)
class Deal:
    """Setting of a match: catalogue, sizes, users, friendships, and the key of all random draws."""

    shelf: Shelf
    limits: Limits
    records: tuple[Record, ...]
    friends: Friends
    key: int
    """Key of all random draws of the match."""

    def with_persona(self, persona: str) -> Deal:
        """Return a copy of the deal in which all users have this persona."""
        return replace(self, records=tuple(replace(record, persona=persona) for record in self.records))

    def __deepcopy__(self, memo: object) -> Deal:
        """Return the same object: a deal is immutable."""
        return self


@dataclass
class Service:
    """State of a match without texts. Call `show` or `ask`, each followed by `continue_visit`, until `is_over`."""

    deal: Deal
    audience: list[Visitor] = field(init=False)
    histories: list[UserHistory] = field(init=False)
    user_index: int = 0
    """Index of the current user."""
    day: int = 0
    """Number of completed days. `page` counts the pages shown in this visit, `finds` the searches on this page."""
    page: int = 0
    visits: int = 0
    returns: int = 0
    """Number of visits after which the user is willing to return on the next day."""
    finds: int = 0
    candidates: tuple[int, ...] = ()
    """Ids of the items offered for the current page."""
    stars: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(sum, count) of the stars of each item."""
    tips_given: list[tuple[int, int, int]] = field(default_factory=list)
    """Recommendations to friends: (item, recommending user, friend)."""
    tips: int = 0
    """Number of clicks on friends' recommendations."""
    is_over: bool = False

    def __post_init__(self) -> None:
        records, key = self.deal.records, self.deal.key
        self.audience = [Visitor(n, record, int(2**53 * uniform(key, n))) for n, record in enumerate(records)]
        self.histories = [UserHistory() for _ in records]
        self._draw_candidates()

    @property
    def visitor(self) -> Visitor:
        """The user of the current visit."""
        return self.audience[self.user_index]

    @property
    def history(self) -> UserHistory:
        """The recommender's observations of the current user."""
        return self.histories[self.user_index]

    @property
    def total_joy(self) -> float:
        """Total joy of all users so far."""
        return sum(visitor.joy for visitor in self.audience)

    def items(self, numbers: Sequence[int]) -> list[Item]:
        """Return the catalogue's items of these ids, in the given order."""
        return [self.deal.shelf.catalogue.items[number] for number in numbers]

    def show(self, slate: list[int], named_genres: frozenset[int] = frozenset()) -> Reaction:
        """Show a page to the user and return the reaction. Call `continue_visit` next.

        `named_genres` has the genres that the explanation names. Records clicks and stars, spreads recommendations to
        friends, and draws new candidates.
        """
        visitor, tips = self.visitor, {*self.visitor.tips}
        reaction = visitor.react_to_page(self.items(sorted(slate)), named_genres)
        self.history.record_page(slate, reaction.clicked, reaction.best)
        self.tips += len(tips.intersection(reaction.clicked))
        for item, joy in zip(reaction.clicked, reaction.joys, strict=True):
            total, count = self.stars.get(item, (0, 0))
            self.stars[item] = total + rate_joy(joy), count + 1
            if joy >= MIN_TIP_JOY:
                friends = spread_word(visitor, item, self.audience, self.deal.friends)
                self.tips_given += [(item, visitor.number, friend) for friend in friends]
        self.page += 1
        self._draw_candidates()
        return reaction

    def ask(self) -> None:
        """Charge the current user's patience for a question. Call `continue_visit` next."""
        self.visitor.charge_question()

    def find(self, words: str) -> None:
        """Search: replace the candidates by as many unseen items nearest to these words, and count the search.

        If too few are found, earlier candidates remain.
        """
        self.finds += 1
        count, seen = self.deal.limits.candidates, self.history.seen
        found = [item for item in self.deal.shelf.find(words, count + len(seen)) if item not in seen]
        self.candidates = tuple(dict.fromkeys([*found, *self.candidates]))[:count]

    def continue_visit(self) -> bool:
        """Return True if the visit continues. Otherwise end the day, then start the next visit or set `is_over`."""
        if self.visitor.mindset.patience > 0 and self.page < self.deal.limits.pages:
            return True
        self.visits += 1
        self.visitor.end_day()
        self.returns += self.visitor.still_visits
        self._start_next_visit()
        return False

    def _start_next_visit(self) -> None:
        self.page = 0
        waiting = range(self.user_index + 1, len(self.audience))
        self.user_index = next((n for n in waiting if self.audience[n].still_visits), -1)
        if self.user_index < 0:
            self.day += 1
            self.user_index = next((n for n, visitor in enumerate(self.audience) if visitor.still_visits), -1)
        self.is_over = self.user_index < 0 or self.day >= self.deal.limits.days
        if self.is_over:
            self.user_index, self.candidates = max(self.user_index, 0), ()
        else:
            self._draw_candidates()

    def _draw_candidates(self) -> None:
        """Draw new candidates: friends' recommendations, items similar to the last enjoyed one, and random ones."""
        self.finds = 0
        count, seen = self.deal.limits.candidates, self.history.seen
        candidates = [item for item in self.visitor.tips if item not in seen][:MAX_TIPS]
        if self.history.last_enjoyed is not None:
            similar = [
                item
                for item in self.deal.shelf.find_similar(self.history.last_enjoyed)
                if item not in seen and item not in candidates
            ]
            candidates += similar[: (count - len(candidates)) // 2]
        size, moment = len(self.deal.shelf.catalogue.items), (self.user_index, self.day, self.page)
        for attempt in range(MAX_DRAWS):
            if len(candidates) >= count:
                break
            item = int(size * uniform(self.deal.key, STOCK, *moment, attempt))
            if item not in candidates and (item not in seen or 2 * attempt > MAX_DRAWS):
                candidates.append(item)
        if len(candidates) < count:
            candidates += [item for item in range(size) if item not in candidates][: count - len(candidates)]
        self.candidates = tuple(candidates)


def rate_joy(joy: float) -> int:
    """Convert a joy in [0, 1] to 1 to 5 stars."""
    return 1 + min(4, int(5 * joy))
