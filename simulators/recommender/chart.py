"""Chart of a user: the pages, clicks and words that a recommender was shown so far. Nothing that is hidden."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulators.recommender.catalogue import Catalogue, Item
from simulators.recommender.wishes import Wish


@dataclass
class Chart:
    """Observations of one user."""

    seen: dict[int, bool] = field(default_factory=dict)
    """By item that was on a page: whether it was clicked, the last time."""
    told: list[Wish] = field(default_factory=list)
    last: int | None = None
    """The item of the latest page with a click that was enjoyed most: as if stars were given."""

    def note(self, slate: list[int], clicked: tuple[int, ...], best: int | None) -> None:
        """A page was taken, and this clicked item of it enjoyed most."""
        self.seen |= {item: item in clicked for item in slate}
        self.last = self.last if best is None else best

    def hear(self, wish: Wish | None) -> None:
        """The user said something; what is said of the same thing later counts."""
        if wish is not None:
            self.told = [each for each in self.told if not _same_matter(each, wish)] + [wish]

    def taps(self, catalogue: Catalogue) -> dict[int, tuple[int, int]]:
        """Items that were clicked and that were shown, by genre."""
        counts: dict[int, tuple[int, int]] = {}
        for item, clicked in self.seen.items():
            for genre in catalogue.items[item].genres:
                hits, shows = counts.get(genre, (0, 0))
                counts[genre] = hits + clicked, shows + 1
        return counts

    def unwanted(self, item: Item) -> bool:
        """Return whether the user said that it does not want this: the genre, or the price."""
        return any(not wish.fits(item) for wish in self.told if wish.kind != "more")

    def wanted(self, item: Item) -> bool:
        """Return whether the user said that it would like more of this."""
        return any(wish.fits(item) for wish in self.told if wish.kind == "more")

    def mark(self, item: Item, taps: dict[int, tuple[int, int]]) -> str:
        """One letter for what is known of an item: x unwanted, ! asked for, + clicked half the time, - not, ? new."""
        if self.unwanted(item):
            return "x"
        if self.wanted(item):
            return "!"
        hits, shows = taps.get(item.genres[0], (0, 0))
        return "?" if not shows else "+" if 2 * hits >= shows else "-"

    def facts(self, catalogue: Catalogue) -> dict[str, Any]:
        """The user's wishes in words: what it said that it wants, does not want, and would pay."""
        named = {
            kind: [catalogue.genres[wish.what] for wish in self.told if wish.kind == kind] for kind in ("more", "less")
        }
        caps = [wish.what for wish in self.told if wish.kind == "under"]
        return {**named, "under": caps[-1] if caps else None}


def _same_matter(one: Wish, two: Wish) -> bool:
    """Return whether both are about prices, or about the same genre."""
    priced = (one.kind == "under", two.kind == "under")
    return all(priced) or (not any(priced) and one.what == two.what)
