"""The user's seat: its due statements, their wording, and the text that the recommender receives.

With person "render", the seat phrases the due wish. If the extractor reads anything else in its text, the text is
requested again and, after a second failure, replaced by the template; each failure costs the seat 0.1 (part `reading`).
With "free", the seat sees its taste and mindset and may say anything: the recommender receives the wish in its words,
true or not. The seat is paid its own joy. With "played", it also speaks at the start of a visit and may end it, and
pays only the fines of `simulators.played`. Clicks always follow from the user's record, never from the seat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulators.person import Renderings, Speech
from simulators.played import FINE, Faults
from simulators.recommender.audience import Visitor
from simulators.recommender.catalogue import Catalogue
from simulators.recommender.speech import as_fact, encode_wish, read, read_wish, read_wishes
from simulators.recommender.wishes import Wish
from simulators.recommender.words import LETTERS

LOVED = 0.5
"""Affinity above which a genre is loved."""


@dataclass
class Seat:
    """Seat that phrases a user's statements: `request` asks for one, `hear` checks the seat's text."""

    person: Speech
    terse: bool
    template: str = ""
    """Text of the script."""
    wish: Wish | None = None
    """Wish that the text states."""
    due: bool = False
    is_question: bool = False
    """Whether the recommender has asked for the wish."""
    before: dict[str, Any] = field(default_factory=dict)
    """Mindset before the latest page."""
    renderings: Renderings = field(default_factory=Renderings)
    steered: int = 0
    """Number of wishes stated by a free seat; `untrue` counts the false ones."""
    untrue: int = 0

    def request(self, template: str, wish: Wish | None, is_question: bool = False) -> None:
        """Ask the seat to phrase a wish. `template` is the script's text for it.

        `is_question` says whether the recommender asked about the wish.
        """
        self.template, self.wish, self.due, self.is_question = template, wish, True, is_question

    def facts(self, visitor: Visitor, catalogue: Catalogue) -> dict[str, Any]:
        """Return the seat's facts: the due text (`template`) and its code (`answer`).

        A free or played seat also sees its `taste` by genre, price `cap`, mindset `before` the latest page and now
        (`mindset`), and the same in few tokens (`marks`); a played one the genres that it `loves` and `dislikes`.
        """
        said = {"template": self.template, "answer": encode_wish(self.wish)}
        if self.person == "render":
            return said
        liking = {genre: round(share, 2) for genre, share in zip(catalogue.genres, visitor.record.taste, strict=True)}
        mind = {"before": dict(self.before), "mindset": visitor.mindset.round_for_log()}
        facts = {**said, "taste": liking, "cap": visitor.record.cap, **mind, "marks": self._marks(visitor)}
        if self.person == "played":
            loved = [genre for genre, share in zip(catalogue.genres, visitor.affinity, strict=True) if share > LOVED]
            disliked = [catalogue.genres[genre] for genre in visitor.record.disliked]
            facts |= {"loves": loved, "dislikes": disliked}
        return facts

    def legal(self, catalogue: Catalogue, cap: int) -> list[str] | None:
        """Return the texts suggested to a free seat, which may say others too; None for person "render".

        In words: FINE, `UNDER {cap}` (the user's price cap), and MORE or LESS with a genre. Terse: ".", "<", and + or -
        with a genre's letter.
        """
        if self.person == "render":
            return None
        if self.terse:
            letters = LETTERS[: len(catalogue.genres)]
            return [".", "<", *(f"+{letter}" for letter in letters), *(f"-{letter}" for letter in letters)]
        wishes = [f"{verb} {genre}" for verb in ("MORE", "LESS") for genre in catalogue.genres]
        return ["FINE", f"UNDER {cap}", *wishes]

    def hear(self, text: str, visitor: Visitor, catalogue: Catalogue) -> tuple[str, Wish | None, float] | None:
        """Check a text; return (text for the recommender, its wish, the fine), or None to request it once more.

        Person "render": a second wrong text is replaced by the template and costs 0.1; the caller fines the first. Free
        seat: any text passes, with the wish in its words or None, and costs nothing.
        """
        if self.person == "render":
            heard = self.renderings.choose_text(text, self.template, lambda said: read(said, catalogue))
            self.due = heard is None
            return None if heard is None else (heard, self.wish, 0.0 if heard == text else FINE)
        self.due, wish = False, read_wish(text, catalogue, visitor.record.cap)
        self.steered += wish is not None
        self.untrue += wish is not None and not is_true_of(wish, visitor)
        return text, wish, 0.0

    def check(self, text: str, visitor: Visitor, catalogue: Catalogue) -> Faults:
        """Return the faults of a played seat's text: false wishes, true wishes after the first, and withheld answers.

        An answer is withheld if the recommender asked for a wish and the text states none.
        """
        wishes = read_wishes(text, catalogue, visitor.record.cap)
        true = [as_fact(wish, catalogue) for wish in wishes if is_true_of(wish, visitor)]
        wrong = [as_fact(wish, catalogue) for wish in wishes if not is_true_of(wish, visitor)]
        return Faults(wrong, true[1:], [self.template] if self.is_question and self.wish and not wishes else [])

    def figures(self) -> dict[str, float | bool | str]:
        """Return counts of the seat's texts for the report.

        For person "render" they count the checks' results; for "free", wishes (`steered`) and false wishes (`untrue`).
        Otherwise {}.
        """
        if self.person == "render":
            return self.renderings.figures()
        return {"steered": self.steered, "untrue": self.untrue} if self.person == "free" else {}

    def _marks(self, visitor: Visitor) -> str:
        """Return the seat's facts in few tokens: letters of loved genres, patience from 0 to 9, due wish's code."""
        order = sorted(range(len(visitor.affinity)), key=lambda genre: -visitor.affinity[genre])
        loved = "".join(LETTERS[genre] for genre in order if visitor.affinity[genre] > LOVED)
        return f"{loved} {max(0, min(9, round(2 * visitor.mindset.patience)))} {encode_wish(self.wish)}"


def is_true_of(wish: Wish, visitor: Visitor) -> bool:
    """Return True if a wish fits the user: more of a genre with affinity, less of one without, or its price cap."""
    if wish.kind == "under":
        return wish.value == visitor.record.cap
    return bool(visitor.affinity[wish.value]) == (wish.kind == "more")
