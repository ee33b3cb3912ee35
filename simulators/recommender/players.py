"""Scripted players of the recommender: random, popularity, bandits that use or ignore users' statements, oracle.

Bandits see what any recommender sees (genres and prices of the candidates, clicks, statements) and, like `popular`, the
exact quality of an item instead of the hint in its text. At the user's seat, `noop` says nothing, `random` says any
listed text, and all others say the scripted text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from games.contracts import View
from simulators.base import Script, silent
from simulators.recommender import yardstick
from simulators.recommender.acts import Act, format_act
from simulators.recommender.catalogue import Item
from simulators.recommender.history import UserHistory
from simulators.recommender.service import Service
from simulators.recommender.wishes import TOPIC_OF, TOPICS

PRIOR = (0.3, 0.7)
"""Prior numbers of clicks and misses of each genre."""
ASKS = ("genre", "price")
"""Topics about which the listening bandit asks each user first, unless the user has stated them."""
REQUEST_CLICKS = 3.0
"""Number of clicks that a request for a genre counts as, for the listening bandit."""


class Match(Protocol):
    """Attributes of a recommender match that the scripted players use."""

    seats: tuple[str, ...]
    terse: bool
    service: Service

    def names(self) -> dict[int, str]:
        """Return the names of the page's candidates by item id."""
        ...


Serve = Callable[[Service], Act]


def at_random(game: Match, seed: int) -> Script:
    """Return a player that shows full pages of random candidates. At the user's seat it says a random listed text."""
    rng = random.Random(seed)
    choose = yardstick.make_random_choice(rng)

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return rng.choice(view.legal) if view.legal else str(view.private["template"])
        return _format_act(game, Act("show", tuple(choose(game.service)[0])))

    return answer


def oracle(game: Match, seed: int) -> Script:
    """Return a player that knows the user's mindset and shows the page of highest expected joy, naming its genres."""

    def serve(service: Service) -> Act:
        slate, named_genres = yardstick.choose_best_page(service)
        genres = service.deal.shelf.catalogue.genres
        return Act("show", tuple(slate), " and ".join(genres[genre] for genre in sorted(named_genres)))

    return _make_player(game, serve)


def popular(game: Match, seed: int) -> Script:
    """Return a player that shows every user the candidates with the highest quality."""
    return _make_player(game, lambda service: _best_page(service, lambda item: item.quality))


def deaf_bandit(game: Match, seed: int) -> Script:
    """Return a Thompson-sampling bandit that learns each user's genres from clicks and ignores statements."""
    rng = random.Random(seed)
    return _make_player(
        game, lambda service: _best_page(service, _sample_value(service, service.history, rng, listens=False))
    )


def listening_bandit(game: Match, seed: int, topics: Sequence[str] = TOPICS, variety: float = 0.0) -> Script:
    """Return a Thompson-sampling bandit that also asks each user about genre and price, and follows the answers.

    It uses only statements about `topics`. `variety` is the discount for genres that are already on the page.
    """
    rng = random.Random(seed)
    asked: set[tuple[int, str]] = set()

    def serve(service: Service) -> Act:
        wishes = [wish for wish in service.history.wishes if TOPIC_OF[wish.kind] in topics]
        history = replace(service.history, wishes=wishes)
        known = {TOPIC_OF[wish.kind] for wish in wishes}
        unasked = [topic for topic in ASKS if (service.user_index, topic) not in asked and topic in {*topics} - known]
        if unasked and service.page == 0:
            asked.add((service.user_index, unasked[0]))
            return Act("ask", words=unasked[0])
        return _best_page(service, _sample_value(service, history, rng, listens=True), variety)

    return _make_player(game, serve)


def _sample_value(service: Service, history: UserHistory, rng: random.Random, listens: bool) -> Callable[[Item], float]:
    """Draw a value function of items: genres' click rates from Beta(clicks, misses), adjusted by statements."""
    catalogue = service.deal.shelf.catalogue
    clicks = history.count_clicks(catalogue)
    requested_genres = {wish.value for wish in history.wishes if wish.kind == "more"} if listens else set()
    click_rates = []
    for genre in range(len(catalogue.genres)):
        hits, shows = clicks.get(genre, (0, 0))
        click_rates.append(
            rng.betavariate(PRIOR[0] + hits + REQUEST_CLICKS * (genre in requested_genres), PRIOR[1] + shows - hits)
        )

    def value(item: Item) -> float:
        click_rate = sum(click_rates[genre] for genre in item.genres) / len(item.genres)
        return (0.4 + 0.6 * item.quality) * click_rate - (listens and history.is_unwanted(item))

    return value


def _best_page(service: Service, value: Callable[[Item], float], variety: float = 0.0) -> Act:
    """Return the act that shows the candidates of highest value, picked one by one.

    A candidate's value falls by `variety` if its main genre is already on the page (maximal marginal relevance,
    Carbonell and Goldstein 1998).
    """
    remaining, page = service.items(service.candidates), list[Item]()
    while len(page) < service.deal.limits.slate:
        shown_genres = {item.genres[0] for item in page}
        page.append(max(remaining, key=lambda item: value(item) - variety * (item.genres[0] in shown_genres)))
        remaining.remove(page[-1])
    return Act("show", tuple(item.id for item in page))


def _make_player(game: Match, serve: Serve) -> Script:
    """Return a player that plays the acts of `serve`. At the user's seat it says the scripted text."""

    def answer(view: View) -> str:
        if view.seat == game.seats[0]:
            return _format_act(game, serve(game.service))
        return str((game.terse and view.private["answer"]) or view.private["template"])

    return answer


def _format_act(game: Match, act: Act) -> str:
    """Format an act with its items in the candidates' order, so that equal pages have equal texts."""
    items = tuple(sorted(act.items, key=game.service.candidates.index))
    return format_act(act._replace(items=items), game.names(), game.terse)


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": at_random,
    "oracle": oracle,
    "popular": popular,
    "deaf": deaf_bandit,
    "listening": listening_bandit,
}
