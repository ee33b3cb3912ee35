"""The user's seat: what the user should say, who words it, and what the recommender receives.

With person "render", a text that the extractor does not read as exactly the due wish is requested once more, and then
replaced by the template; each costs the seat 0.1 (part `reading`). With "free", the seat sees its taste and mindset and
may say anything: the recommender receives the wish in its words, true or not. The seat is paid its own joy.
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
    """Seat that words a user's statements: `asked` requests one, `hear` checks the seat's text."""

    person: Speech
    terse: bool
    template: str = ""
    """Text of the script."""
    wish: Wish | None = None
    """Wish that the text states."""
    due: bool = False
    before: dict[str, Any] = field(default_factory=dict)
    """Mindset before the latest page."""
    renderings: Renderings = field(default_factory=Renderings)
    steered: int = 0
    """Number of wishes stated by a free seat; `untrue` counts the false ones."""
    untrue: int = 0

    def asked(self, template: str, wish: Wish | None) -> None:
        """Request a statement from the seat; `template` is the script's text of `wish`."""
        self.template, self.wish, self.due = template, wish, True

    def facts(self, visitor: Visitor, catalogue: Catalogue) -> dict[str, Any]:
        """Return what the seat sees: the due text and its code and, for a free seat, its taste, cap and mindset."""
        said = {"template": self.template, "answer": short(self.wish)}
        if self.person == "render":
            return said
        liking = {genre: round(share, 2) for genre, share in zip(catalogue.genres, visitor.record.taste, strict=True)}
        mind = {"before": dict(self.before), "mindset": visitor.mindset.rounded()}
        return {**said, "taste": liking, "cap": visitor.record.cap, **mind, "marks": self._marks(visitor)}

    def legal(self, catalogue: Catalogue, cap: int) -> list[str] | None:
        """Return the texts offered to a free seat, codes in terse mode; others are allowed. None for "render"."""
        if self.person == "render":
            return None
        if self.terse:
            letters = LETTERS[: len(catalogue.genres)]
            return [".", "<", *(f"+{letter}" for letter in letters), *(f"-{letter}" for letter in letters)]
        wishes = [f"{verb} {genre}" for verb in ("MORE", "LESS") for genre in catalogue.genres]
        return ["FINE", f"UNDER {cap}", *wishes]

    def hear(self, text: str, visitor: Visitor, catalogue: Catalogue) -> tuple[str, Wish | None, float] | None:
        """Check a text; return (text for the recommender, its wish, the fine), or None to request it once more."""
        if self.person == "render":
            heard = self.renderings.settled(text, self.template, lambda said: read(said, catalogue))
            self.due = heard is None
            return None if heard is None else (heard, self.wish, 0.0 if heard == text else FINE)
        self.due, wish = False, wish_of(text, catalogue, visitor.record.cap)
        self.steered += wish is not None
        self.untrue += wish is not None and not true_of(wish, visitor)
        return text, wish, 0.0

    def figures(self) -> dict[str, float | bool | str]:
        """Return counts of the seat's texts: results of checks for "render", wishes for "free", else {}."""
        if self.person == "render":
            return self.renderings.figures()
        return {"steered": self.steered, "untrue": self.untrue} if self.person == "free" else {}

    def _marks(self, visitor: Visitor) -> str:
        """Return the seat's facts in few tokens: letters of loved genres, patience from 0 to 9, due wish's code."""
        order = sorted(range(len(visitor.affinity)), key=lambda genre: -visitor.affinity[genre])
        loved = "".join(LETTERS[genre] for genre in order if visitor.affinity[genre] > 0.5)
        return f"{loved} {max(0, min(9, round(2 * visitor.mindset.patience)))} {short(self.wish)}"


def true_of(wish: Wish, visitor: Visitor) -> bool:
    """Return True if a wish is true of the user: more of a genre it chooses, less of one it never does, or its cap."""
    if wish.kind == "under":
        return wish.what == visitor.record.cap
    return bool(visitor.affinity[wish.what]) == (wish.kind == "more")
