"""Observations of one user: the pages, clicks and statements that the recommender has seen. Nothing hidden."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulators.recommender.catalogue import Catalogue, Item
from simulators.recommender.wishes import Wish


@dataclass
class Chart:
    """Observations of one user."""

    seen: dict[int, bool] = field(default_factory=dict)
    """Shown items, True if the item was clicked the last time."""
    told: list[Wish] = field(default_factory=list)
    last: int | None = None
    """Most enjoyed item of the latest page with a click, as if the user had rated it."""

    def note(self, slate: list[int], clicked: tuple[int, ...], best: int | None) -> None:
        """Record a page with its clicked items and `best`, the most enjoyed one."""
        self.seen |= {item: item in clicked for item in slate}
        self.last = self.last if best is None else best

    def hear(self, wish: Wish | None) -> None:
        """Record a statement of the user, which replaces an earlier one on the same genre or on prices."""
        if wish is not None:
            self.told = [each for each in self.told if not _same_matter(each, wish)] + [wish]

    def taps(self, catalogue: Catalogue) -> dict[int, tuple[int, int]]:
        """Return (clicked, shown) counts of items by genre."""
        counts: dict[int, tuple[int, int]] = {}
        for item, clicked in self.seen.items():
            for genre in catalogue.items[item].genres:
                hits, shows = counts.get(genre, (0, 0))
                counts[genre] = hits + clicked, shows + 1
        return counts

    def unwanted(self, item: Item) -> bool:
        """Return True if the user rejected the item's genre or price."""
        return any(not wish.fits(item) for wish in self.told if wish.kind != "more")

    def wanted(self, item: Item) -> bool:
        """Return True if the user asked for more of the item's genre."""
        return any(wish.fits(item) for wish in self.told if wish.kind == "more")

    def mark(self, item: Item, taps: dict[int, tuple[int, int]]) -> str:
        """Return an item's mark: x unwanted, ! asked for, + clicked half the time or more, - less, ? new."""
        if self.unwanted(item):
            return "x"
        if self.wanted(item):
            return "!"
        hits, shows = taps.get(item.genres[0], (0, 0))
        return "?" if not shows else "+" if 2 * hits >= shows else "-"

    def facts(self, catalogue: Catalogue) -> dict[str, Any]:
        """Return the user's statements: genres to show more of, genres to avoid, and the price cap."""
        named = {
            kind: [catalogue.genres[wish.what] for wish in self.told if wish.kind == kind] for kind in ("more", "less")
        }
        caps = [wish.what for wish in self.told if wish.kind == "under"]
        return {**named, "under": caps[-1] if caps else None}


def _same_matter(one: Wish, two: Wish) -> bool:
    """Return True if both are about prices, or about the same genre."""
    priced = (one.kind == "under", two.kind == "under")
    return all(priced) or (not any(priced) and one.what == two.what)
