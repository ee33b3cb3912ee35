"""The recommender's yardsticks: chance, popularity, bandits that hear what is said or do not, one that knows the user.

Bandits see what any recommender is shown (genres and prices of the candidates, clicks, and the user's words), and, as
`popular` does, the exact quality of an item, at which a text only hints. At the user's seat, where there is one,
`oracle` says what the script would, `noop` nothing, `random` anything listed, and all others the truth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from games.contracts import View
from simulators.base import Answer
from simulators.recommender import yardstick
from simulators.recommender.acts import Act, written
from simulators.recommender.catalogue import Item
from simulators.recommender.chart import Chart
from simulators.recommender.service import Service
from simulators.recommender.wishes import TOPIC_OF, TOPICS

PRIOR = (0.3, 0.7)
"""Clicks and misses that a bandit believes to have seen of each genre."""
ASKS = ("genre", "price")
"""Topics that the listening bandit asks each user about at first, unless it was told."""
HEARD = 3.0
"""Clicks that a wish for a genre is worth to a bandit that listens."""


class Match(Protocol):
    """A match, as far as its yardsticks know it."""

    seats: tuple[str, ...]
    terse: bool
    service: Service

    def names(self) -> dict[int, str]:
        """Return the names of the candidates, by item."""
        ...


Serve = Callable[[Service], Act]


def noop(game: Match, seed: int) -> Answer:
    """Says nothing, so that nothing is shown."""
    return lambda view: ""


def at_random(game: Match, seed: int) -> Answer:
    """A full page of any candidates; the user's seat, anything."""
    rng = random.Random(seed)
    choose = yardstick.at_random(rng)

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return rng.choice(view.legal) if view.legal else str(view.private["template"])
        return _written(game, Act("show", tuple(choose(game.service)[0])))

    return answer


def oracle(game: Match, seed: int) -> Answer:
    """Knows the user's mind, though not its dice, and says why it shows what it shows."""

    def serve(service: Service) -> Act:
        slate, named = yardstick.knowing(service)
        genres = service.deal.shelf.catalogue.genres
        return Act("show", tuple(slate), " and ".join(genres[genre] for genre in sorted(named)))

    return _player(game, serve)


def popular(game: Match, seed: int) -> Answer:
    """The candidates of the best quality, the same for every user."""
    return _player(game, lambda service: _best(service, lambda item: item.quality))


def deaf(game: Match, seed: int) -> Answer:
    """Thompson sampling of each user's clicks by genre; what the user says goes unheard."""
    rng = random.Random(seed)
    return _player(game, lambda service: _best(service, _sampled(service, service.chart, rng, listens=False)))


def listening(game: Match, seed: int, topics: Sequence[str] = TOPICS, variety: float = 0.0) -> Answer:
    """The same, but it asks each user what it likes and can pay, and follows the answers, as far as `topics` go."""
    rng = random.Random(seed)
    asked: set[tuple[int, str]] = set()

    def serve(service: Service) -> Act:
        chart = replace(service.chart, told=[wish for wish in service.chart.told if TOPIC_OF[wish.kind] in topics])
        known = {TOPIC_OF[wish.kind] for wish in chart.told}
        unasked = [topic for topic in ASKS if (service.at, topic) not in asked and topic in {*topics} - known]
        if unasked and service.page == 0:
            asked.add((service.at, unasked[0]))
            return Act("ask", words=unasked[0])
        return _best(service, _sampled(service, chart, rng, listens=True), variety)

    return _player(game, serve)


def _sampled(service: Service, chart: Chart, rng: random.Random, listens: bool) -> Callable[[Item], float]:
    """A draw from what is believed of each genre, Beta(clicks, misses); what was said moves or rules out."""
    catalogue = service.deal.shelf.catalogue
    taps = chart.taps(catalogue)
    asked_for = {wish.what for wish in chart.told if wish.kind == "more"} if listens else set()
    drawn = []
    for genre in range(len(catalogue.genres)):
        hits, shows = taps.get(genre, (0, 0))
        drawn.append(rng.betavariate(PRIOR[0] + hits + HEARD * (genre in asked_for), PRIOR[1] + shows - hits))

    def value(item: Item) -> float:
        believed = sum(drawn[genre] for genre in item.genres) / len(item.genres)
        return (0.4 + 0.6 * item.quality) * believed - (listens and chart.unwanted(item))

    return value


def _best(service: Service, value: Callable[[Item], float], variety: float = 0.0) -> Act:
    """A full page of the candidates of the greatest value, one by one, each worth less by `variety` where its genre is
    on the page already (maximal marginal relevance, Carbonell and Goldstein 1998)."""
    left, page = service.items(service.candidates), list[Item]()
    while len(page) < service.deal.limits.slate:
        there = {item.genres[0] for item in page}
        page.append(max(left, key=lambda item: value(item) - variety * (item.genres[0] in there)))
        left.remove(page[-1])
    return Act("show", tuple(item.id for item in page))


def _player(game: Match, serve: Serve) -> Answer:
    """Return a player that serves by `serve`; at the user's seat, one that says the truth."""

    def answer(view: View) -> str:
        if view.seat == game.seats[0]:
            return _written(game, serve(game.service))
        return str((game.terse and view.private["answer"]) or view.private["template"])

    return answer


def _written(game: Match, act: Act) -> str:
    """The act, its items in the candidates' order: the same page is always written the same."""
    items = tuple(sorted(act.items, key=game.service.candidates.index))
    return written(act._replace(items=items), game.names(), game.terse)


PLAYERS: Mapping[str, Callable[[Match, int], Answer]] = {
    "noop": noop,
    "random": at_random,
    "oracle": oracle,
    "popular": popular,
    "deaf": deaf,
    "listening": listening,
}
