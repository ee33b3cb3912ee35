"""Format a page's candidates for the recommender."""

from __future__ import annotations

from simulators.recommender.acts import TERSE
from simulators.recommender.service import Service
from simulators.recommender.wishes import TOPIC_OF
from simulators.recommender.words import HINTS, LETTERS, hint_at

PRAISE = "wxyz"
"""One-letter codes of `HINTS`."""


def name_candidates(service: Service, codes: bool) -> dict[int, str]:
    """Return the candidates' names by item id: their numbers on the page, from 1, or semantic ids with `codes`."""
    ids = service.deal.shelf.codes if codes else ()
    return {item: ids[item] if codes else str(number) for number, item in enumerate(service.candidates, 1)}


def describe_candidates(service: Service, codes: bool) -> list[str]:
    """Return a line per candidate: name, text and, if there are several users, stars and a friend's recommendation."""
    lines, several = [], len(service.audience) > 1
    for item, name in name_candidates(service, codes).items():
        total, count = service.stars.get(item, (0, 0))
        stars = f" {total / count:.1f} stars of {count}." if count and several else ""
        friend = " A friend's find." if item in service.visitor.tips else ""
        lines.append(f"{name} {service.deal.shelf.catalogue.items[item].text}{stars}{friend}")
    return lines


def mark_page(service: Service) -> str:
    """Return the page in few tokens, for tiny models: codes of the topics that the user stated, then the candidates.

    The codes are those of `TERSE`, or "." for none. A candidate is written as its mark (`UserHistory.mark`), its main
    genre's letter, a hint at its quality (w to z) and its number. The number comes last and shares no token with the
    rest, so that a tiny model only has to copy it.
    """
    history = service.history
    clicks, stated_topics = (
        history.count_clicks(service.deal.shelf.catalogue),
        {TOPIC_OF[wish.kind] for wish in history.wishes},
    )
    topic_codes = "".join(code for code, topic in TERSE.items() if topic in stated_topics)
    return f"{topic_codes or '.'} " + "".join(
        f"{history.mark(item, clicks)}{LETTERS[item.genres[0]]}{PRAISE[HINTS.index(hint_at(item.quality))]}{number}"
        for number, item in enumerate(service.items(service.candidates), 1)
    )
