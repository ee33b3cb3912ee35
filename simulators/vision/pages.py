"""A deck of slides in print too small for an overview: search, look closer, then answer (VRAG-RL)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import flag, whole_number
from games.contracts import TOOL
from simulators.search.scoring import is_exact
from simulators.vision.boards import Board
from simulators.vision.drawing import DIGITS, pick, reduce
from simulators.vision.pages_acts import USAGE, read_act
from simulators.vision.pages_lessons import KINDS, draw_lesson
from simulators.vision.pages_players import PLAYERS
from simulators.vision.seeing import JUDGED, VisualWorld
from simulators.vision.slides import VALUES, Question, Slide, crop_page, load_deck, render

RIGHT, FORMAT, NDCG = "right", "format", "ndcg"


class Pages(VisualWorld):
    """Single-player game of finding a number in small print on one of 500 slides.

    Acts, alone or as <search>…</search> and so on after a thought: `search WORDS` shows the overview of the best slide
    that was not shown yet, by BM25 on captions that the viewer never reads; `bbox x0 y0 x1 y1`, in thousandths, shows
    that part of the newest slide at full size, or scaled down to 96 x 72 pixels; `answer X` ends the match. Other texts
    and searches without a result get an error message. Additional options: world, the seed of the slides; max_turns, 2
    to 32; objects, whether slides have nine cells with a digit each and some objects, and the cells' letters A to I are
    acts, too. The splits train and test have different firms. Needs the extra `search`.

    VRAG-RL's rewards, paid for an answer after a search: "right", 0.7 for the number; "format", 0.1 without errors;
    "ndcg", 0.2 times the normalised discounted cumulative gain of the slides found, of which one is relevant.
    """

    name = "pages"
    metadata: ClassVar[dict[str, Any]] = {"name": "pages_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "0.7 for the number", FORMAT: "0.1 without errors", NDCG: "0.2 times the NDCG of the slides found",
    }  # fmt: skip
    theory: ClassVar[Mapping[str, float]] = {"blind": 1 / len(VALUES)}
    floor = 1 / len(VALUES)
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(self, *, world: int = 0, max_turns: int = 8, objects: bool = False, **options: Any) -> None:
        self.world = whole_number("world", world, least=0)
        self.max_turns = whole_number("max_turns", max_turns, least=2, most=32)
        super().__init__(**options)
        self.objects = flag("objects", objects)
        self.deck = load_deck(self.world, self.split, self.objects)
        self.floor = 1 / len(self.deck.values)
        self.deck.index.find("slide", 1)  # a missing package raises now, not during a match

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a question about a random slide, and show it."""
        slide = pick(rng, self.deck.slides)
        self.question = Question(slide, int(rng.integers(len(slide.labels))))
        self.number = int(options.get(JUDGED, self.question.value))
        self.found: list[Slide | Board] = []
        self.errors = self.looks = 0
        self.hit = self.right = False
        self.show(str(self.question))

    def rules(self) -> str:
        """Return the rules as text: the task and the format of acts."""
        return (
            f"Answer the question about a deck of slides. {self.max_turns} turns in all, each one of: {USAGE}. Search "
            "shows the best slide that was not shown yet, small; bbox shows a part of it at full size, from 0 to 999."
        )

    def public(self) -> dict[str, Any]:
        """Return the `question`, the number of slides `found`, and `turns_left`."""
        return {"question": str(self.question), "found": len(self.found), "turns_left": self.max_turns - self.turns}

    def play(self, seat: str, act: str) -> str:
        """Search, look closer, or answer. Returns the act in normal form, or "nothing"."""
        parsed = read_act(act)
        if parsed is None:
            self.fail(f"write {USAGE}")
        elif parsed.kind == "search":
            self._search(parsed.words)
        elif parsed.kind == "bbox":
            self._look(parsed.words)
        else:
            self._answer(seat, parsed.words)
            return str(parsed)
        if self.turns == self.max_turns - 1:
            self.end("turns", "No turns are left, and nothing was answered.")
        return str(parsed) if parsed else "nothing"

    def _search(self, words: str) -> None:
        try:
            hits = [self.deck.slides[hit] for hit in self.deck.index.find(words, len(self.found) + 1)]
        except ValueError as error:
            self.fail(str(error))
            return
        next_slide = next((slide for slide in hits if slide not in self.found), None)
        if next_slide is None:
            self.fail("no other slide has any of these words")
            return
        self.found.append(next_slide)
        self.show(f"Slide {len(self.found)}.", reduce(render(next_slide)), sender=TOOL)

    def _look(self, words: str) -> None:
        box = self.found[-1].parse_box(words) if self.found else None
        if box is None:
            self.fail("bbox needs four numbers from 0 to 999" if self.found else "search first")
            return
        self.looks += 1
        self.hit |= self.found[-1] == self.question.slide and self.question.is_shown_by(box)
        self.show(crop_page(render(self.found[-1]), box), sender=TOOL)

    def _answer(self, seat: str, answer: str) -> None:
        self.right = bool(self.found) and is_exact(answer, [str(self.number)])
        if self.found:
            self.pay(seat, RIGHT, 0.7 * self.right)
            self.pay(seat, FORMAT, 0.0 if self.errors else 0.1)
            self.pay(seat, NDCG, 0.2 * self.ndcg)
        self.end("answered", "That is right." if self.right else "That is wrong.")

    @property
    def ndcg(self) -> float:
        """Normalised discounted cumulative gain of the slides found: 1 if the first one is the relevant one."""
        rank = self.found.index(self.question.slide) + 1 if self.question.slide in self.found else math.inf
        return 1 / math.log2(1 + rank)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `ndcg`, `searches` that found a slide, `looks`, `errors` and `hit`.

        `hit` is True if a look showed the value that was asked for.
        """
        counts = {"searches": len(self.found), "looks": self.looks, "errors": self.errors, "hit": self.hit}
        return {"score": float(self.right), "success": self.right, "ndcg": self.ndcg, **counts}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that would reveal the number."""
        return {"number": (f"digit {self.number}", DIGITS[self.number]) if self.objects else (str(self.number),)}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of two deals with the same question but different right numbers."""
        first, second = rng.permutation(np.array(self.deck.values))[:2].tolist()
        return {JUDGED: first}, {JUDGED: second}
