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
"""Affinity above which the facts call a genre loved."""


@dataclass
class Seat:
    """Seat that phrases a user's statements: `request` asks for one, `hear` checks the seat's text."""

    person: Speech
    terse: bool
    template: str = ""
    """The script's text of the due statement."""
    wish: Wish | None = None
    """Wish that the template states."""
    due: bool = False
    is_question: bool = False
    """Whether the statement answers a question of the recommender."""
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
        """Return the seat's facts: the script's due text (`template`) and its code (`answer`).

        A free or played seat also sees its `taste` by genre, price `cap`, mindset `before` the latest page and now
        (`mindset`), and a summary in few tokens (`marks`). A played seat sees which genres it `loves` and `dislikes`.
        """
        due = {"template": self.template, "answer": encode_wish(self.wish)}
        if self.person == "render":
            return due
        liking = {genre: round(share, 2) for genre, share in zip(catalogue.genres, visitor.record.taste, strict=True)}
        mind = {"before": dict(self.before), "mindset": visitor.mindset.round_for_log()}
        facts = {**due, "taste": liking, "cap": visitor.record.cap, **mind, "marks": self._marks(visitor)}
        if self.person == "played":
            loves = [genre for genre, share in zip(catalogue.genres, visitor.affinity, strict=True) if share > LOVED]
            dislikes = [catalogue.genres[genre] for genre in visitor.record.disliked]
            facts |= {"loves": loves, "dislikes": dislikes}
        return facts

    def legal(self, catalogue: Catalogue, cap: int) -> list[str] | None:
        """Return texts that a free or played seat can say, among others; None for person "render".

        They are FINE, `UNDER {cap}` (the user's price cap), and MORE or LESS with a genre; in terse mode ".", "<", and
        + or - with a genre's letter.
        """
        if self.person == "render":
            return None
        if self.terse:
            letters = LETTERS[: len(catalogue.genres)]
            return [".", "<", *(f"+{letter}" for letter in letters), *(f"-{letter}" for letter in letters)]
        wishes = [f"{verb} {genre}" for verb in ("MORE", "LESS") for genre in catalogue.genres]
        return ["FINE", f"UNDER {cap}", *wishes]

    def hear(self, text: str, visitor: Visitor, catalogue: Catalogue) -> tuple[str, Wish | None, float] | None:
        """Check a text. Returns (text for the recommender, its wish, the fine), or None to request another text.

        Person "render": a second wrong text is replaced by the template and costs 0.1; the caller fines the first. Free
        or played seat: any text passes without a fine, with the wish parsed from its words or None.
        """
        if self.person == "render":
            utterance = self.renderings.choose_text(text, self.template, lambda candidate: read(candidate, catalogue))
            self.due = utterance is None
            return None if utterance is None else (utterance, self.wish, 0.0 if utterance == text else FINE)
        self.due, wish = False, read_wish(text, catalogue, visitor.record.cap)
        self.steered += wish is not None
        self.untrue += wish is not None and not is_true_of(wish, visitor)
        return text, wish, 0.0

    def check(self, text: str, visitor: Visitor, catalogue: Catalogue) -> Faults:
        """Return the faults of a played seat's text.

        Wishes that are not true of the user are wrong. True ones are leaked, except for the first. A wish that answers
        a question is withheld if the text states none.
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
        """Return the seat's facts in few tokens: letters of loved genres, patience from 0 to 9, due wish as code."""
        order = sorted(range(len(visitor.affinity)), key=lambda genre: -visitor.affinity[genre])
        loved = "".join(LETTERS[genre] for genre in order if visitor.affinity[genre] > LOVED)
        return f"{loved} {max(0, min(9, round(2 * visitor.mindset.patience)))} {encode_wish(self.wish)}"


def is_true_of(wish: Wish, visitor: Visitor) -> bool:
    """Return True if a wish is true of the user: its cap, more of a genre, or less of a disliked one."""
    if wish.kind == "under":
        return wish.value == visitor.record.cap
    return bool(visitor.affinity[wish.value]) == (wish.kind == "more")
