"""The recommender's observations of one user: pages, clicks and statements. Contains nothing hidden."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulators.recommender.catalogue import Catalogue, Item
from simulators.recommender.wishes import Wish


@dataclass
class UserHistory:
    """The recommender's observations of a user: shown and clicked items, and the user's statements."""

    seen: dict[int, bool] = field(default_factory=dict)
    """Ids of shown items; True if the item was clicked when it was shown last."""
    wishes: list[Wish] = field(default_factory=list)
    last_enjoyed: int | None = None
    """Most enjoyed item of the latest page with a click, known as if from the user's ratings."""

    def record_page(self, slate: list[int], clicked: tuple[int, ...], best: int | None) -> None:
        """Record a shown page, its clicked items, and its most enjoyed item (None without clicks)."""
        self.seen |= {item: item in clicked for item in slate}
        self.last_enjoyed = self.last_enjoyed if best is None else best

    def record_wish(self, wish: Wish | None) -> None:
        """Record a statement. It replaces an earlier one about the same genre or about prices. None is ignored."""
        if wish is not None:
            self.wishes = [each for each in self.wishes if not _replaces(each, wish)] + [wish]

    def count_clicks(self, catalogue: Catalogue) -> dict[int, tuple[int, int]]:
        """Return the numbers of (clicked, shown) items by genre index. An item counts once, by its latest showing."""
        counts: dict[int, tuple[int, int]] = {}
        for item, clicked in self.seen.items():
            for genre in catalogue.items[item].genres:
                hits, shows = counts.get(genre, (0, 0))
                counts[genre] = hits + clicked, shows + 1
        return counts

    def is_unwanted(self, item: Item) -> bool:
        """Return True if the user stated a dislike of one of its genres, or a price limit below its price."""
        return any(not wish.fits(item) for wish in self.wishes if wish.kind != "more")

    def is_wanted(self, item: Item) -> bool:
        """Return True if the user asked for more of the item's genre."""
        return any(wish.fits(item) for wish in self.wishes if wish.kind == "more")

    def mark(self, item: Item, clicks: dict[int, tuple[int, int]]) -> str:
        """Return an item's mark: x unwanted, ! asked for, + clicked at least half the time, - clicked less, ? new.

        The last three rate the item's main genre by `clicks`, the result of `count_clicks`.
        """
        if self.is_unwanted(item):
            return "x"
        if self.is_wanted(item):
            return "!"
        hits, shows = clicks.get(item.genres[0], (0, 0))
        return "?" if not shows else "+" if 2 * hits >= shows else "-"

    def facts(self, catalogue: Catalogue) -> dict[str, Any]:
        """Return the user's statements: wanted genres ("more"), unwanted genres ("less") and price cap ("under")."""
        named = {
            kind: [catalogue.genres[wish.value] for wish in self.wishes if wish.kind == kind]
            for kind in ("more", "less")
        }
        caps = [wish.value for wish in self.wishes if wish.kind == "under"]
        return {**named, "under": caps[-1] if caps else None}


def _replaces(one: Wish, two: Wish) -> bool:
    """Return True if two statements concern the same genre, or both concern prices."""
    are_price_caps = (one.kind == "under", two.kind == "under")
    return all(are_price_caps) or (not any(are_price_caps) and one.value == two.value)
