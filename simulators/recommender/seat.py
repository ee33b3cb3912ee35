"""The user's seat: what it is due to say, who words it, and what is heard.

With person "render" a text that the extractor does not read as exactly the wish due is asked for once more, then the
template stands in; each costs the seat 0.1 (part `reading`). With "free" the seat sees its own taste and mindset and
may steer: whatever wish its words tell is what the recommender hears, true or not. The seat is paid its own joy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulators.person import Renderings, Speech
from simulators.recommender.audience import Visitor
from simulators.recommender.catalogue import Catalogue
from simulators.recommender.speech import read, short, wish_of
from simulators.recommender.wishes import Wish
from simulators.recommender.words import LETTERS

FINE = 0.1


@dataclass
class Seat:
    """The seat that says a user's words: reads them and says what the recommender hears."""

    person: Speech
    terse: bool
    template: str = ""
    """Words that the script would say."""
    wish: Wish | None = None
    """Wish of these words."""
    due: bool = False
    before: dict[str, Any] = field(default_factory=dict)
    """The mindset before the latest page."""
    renderings: Renderings = field(default_factory=Renderings)
    steered: int = 0
    """Wishes that a free seat told, and how many of them were not true."""
    untrue: int = 0

    def asked(self, template: str, wish: Wish | None) -> None:
        """It is its turn; the script would say this."""
        self.template, self.wish, self.due = template, wish, True

    def facts(self, visitor: Visitor, catalogue: Catalogue) -> dict[str, Any]:
        """Return what it sees: what it is due to say; playing freely, also what it likes and how it feels."""
        said = {"template": self.template, "answer": short(self.wish)}
        if self.person == "render":
            return said
        liking = {genre: round(share, 2) for genre, share in zip(catalogue.genres, visitor.record.taste, strict=True)}
        mind = {"before": dict(self.before), "mindset": visitor.mindset.rounded()}
        return {**said, "taste": liking, "cap": visitor.record.cap, **mind, "marks": self._marks(visitor)}

    def legal(self, catalogue: Catalogue, cap: int) -> list[str] | None:
        """Return what a free seat may wish for; its own words go as well."""
        if self.person == "render":
            return None
        if self.terse:
            letters = LETTERS[: len(catalogue.genres)]
            return [".", "<", *(f"+{letter}" for letter in letters), *(f"-{letter}" for letter in letters)]
        wishes = [f"{verb} {genre}" for verb in ("MORE", "LESS") for genre in catalogue.genres]
        return ["FINE", f"UNDER {cap}", *wishes]

    def hear(self, text: str, visitor: Visitor, catalogue: Catalogue) -> tuple[str, Wish | None, float] | None:
        """Return what the recommender hears, what that wishes for, and what it costs the seat; None: ask once more."""
        if self.person == "render":
            heard = self.renderings.settled(text, self.template, lambda said: read(said, catalogue))
            self.due = heard is None
            return None if heard is None else (heard, self.wish, 0.0 if heard == text else FINE)
        self.due, wish = False, wish_of(text, catalogue, visitor.record.cap)
        self.steered += wish is not None
        self.untrue += wish is not None and not true_of(wish, visitor)
        return text, wish, 0.0

    def figures(self) -> dict[str, float | bool | str]:
        """Return figures of its words: how they were read, or how many wishes they told and how many were untrue."""
        if self.person == "render":
            return self.renderings.figures()
        return {"steered": self.steered, "untrue": self.untrue} if self.person == "free" else {}

    def _marks(self, visitor: Visitor) -> str:
        """Its favourites, the dearest first, and what it would say, in few tokens."""
        order = sorted(range(len(visitor.affinity)), key=lambda genre: -visitor.affinity[genre])
        loved = "".join(LETTERS[genre] for genre in order if visitor.affinity[genre] > 0.5)
        return f"{loved} {max(0, min(9, round(2 * visitor.mindset.patience)))} {short(self.wish)}"


def true_of(wish: Wish, visitor: Visitor) -> bool:
    """Return whether a wish is true of a user: a genre that it chooses, one that it does not, the most it can pay."""
    if wish.kind == "under":
        return wish.what == visitor.record.cap
    return bool(visitor.affinity[wish.what]) == (wish.kind == "more")
