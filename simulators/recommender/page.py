"""A page's candidates, as the recommender reads them."""

from __future__ import annotations

from simulators.recommender.service import Service
from simulators.recommender.words import HINTS, LETTERS, hint


def names(service: Service, codes: bool) -> dict[int, str]:
    """What the candidates are called: their numbers on the page, or their semantic ids."""
    ids = service.deal.shelf.codes if codes else ()
    return {item: ids[item] if codes else str(number) for number, item in enumerate(service.candidates, 1)}


def listed(service: Service, codes: bool) -> list[str]:
    """The candidates in words, with the stars that others gave them, and whether a friend found them."""
    lines, several = [], len(service.audience) > 1
    for item, name in names(service, codes).items():
        total, count = service.stars.get(item, (0, 0))
        stars = f" {total / count:.1f} stars of {count}." if count and several else ""
        friend = " A friend's find." if item in service.visitor.heard_of else ""
        lines.append(f"{name} {service.deal.shelf.catalogue.items[item].text}{stars}{friend}")
    return lines


def marks(service: Service) -> str:
    """The candidates in few tokens: genre, what is known of it (`Chart.mark`), how well it is spoken of (0 to 3)."""
    taps = service.chart.taps(service.deal.shelf.catalogue)
    return "".join(
        f"{LETTERS[item.genres[0]]}{service.chart.mark(item, taps)}{HINTS.index(hint(item.quality))}"
        for item in service.items(service.candidates)
    )
