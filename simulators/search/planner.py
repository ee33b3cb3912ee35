"""Search planner game: choose the searches for a reader who cannot search (AI-SearchPlanner)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import choice, flag, number
from simulators.base import Answer
from simulators.search import planner_players
from simulators.search.acts import must, read_act
from simulators.search.players import answer_from
from simulators.search.questions import Question
from simulators.search.scoring import exact
from simulators.search.search import FLOOR_DEALS, Search

PLANNER, READER = "planner", "reader"


class SearchPlanner(Search):
    """Acts: the planner's search, open, STOP; then a reader answers from the pages that were read.

    Options besides Search's: reader "script" (answers what the pages say) or "seat" (a frozen policy, say, at a seat of
    its own); process: what the planner is paid for each page, as a share of those that the answer rests on, that a call
    brings; baseline: whether a right answer pays nothing where the scripted reader is right without any page.

    Parts: `answer`, 1 for the reader's right answer; `process`; `cost`, of each call. After AI-SearchPlanner's outcome
    + lambda process - alpha cost (constants there are not published). `best`, in the report, is what the player `best`
    earns: it searches, step by step, where what that takes costs less than a right answer pays.
    """

    name = "search_planner"
    seats: tuple[str, ...] = (PLANNER,)
    metadata: ClassVar[dict[str, Any]] = {"name": "search_planner_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "answer": "1 for the reader's right answer", "process": "a page that the answer rests on", "cost": "of a call",
    }  # fmt: skip
    players: Mapping[str, Callable[[Any, int], Answer]] = planner_players.PLAYERS

    def __init__(
        self,
        *,
        reader: Literal["script", "seat"] = "script",
        process: float = 0.0,
        baseline: bool = False,
        **options: Any,
    ) -> None:
        self.reads = choice("reader", reader, "script", "seat") == "seat"
        self.process, self.baseline = number("process", process), flag("baseline", baseline)
        if self.reads:
            self.seats = (PLANNER, READER)
        super().__init__(**options)
        if self.library.world is None and not self.reads:
            raise ValueError('reader must be "seat" where pages are a file\'s: the script reads generated ones alone')

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a question as `Search` does."""
        super().set_up(rng, options)
        self.stopped = False

    def of_split(self, question: Question) -> bool:
        """Return True if a question belongs to the split and its evidence pages can be found."""
        return super().of_split(question) and self.findable(question)

    def rules(self) -> str:
        """Return the tools and acts."""
        if self.terse:
            return "?words searches, . stops."
        return (
            "The planner searches a library for what a question asks; then a reader answers it from the pages that "
            f"were read, and nothing else. Each call costs {self.cost:g}, a right answer pays 1. Tools, one call at a "
            f"time, at most {self.budget.searches} searches:\n{self.tools()}\nThe planner ends with STOP. The reader "
            "writes ANSWER and a text."
        )

    def private(self, seat: str) -> dict[str, Any]:
        """Return the planner's found titles, or the reader's pages after the planner has stopped."""
        if seat == PLANNER:
            return super().private(seat)
        return {"pages": self.work.texts if self.stopped else []}

    def legal(self, seat: str) -> list[str] | None:  # type: ignore[override]
        """Return the planner's calls and stop, or the reader's listed answers."""
        names = self.names_read(self.work, self.question.text)
        if seat == READER:
            return self.listed_answers(names)
        return [*self.listed_calls(self.work, names), "." if self.terse else "STOP"]

    def next_seat(self, seat: str) -> str:
        """Return the reader's seat, if there is one, after the planner has stopped; else the planner."""
        return READER if self.stopped and self.reads else PLANNER

    def play(self, seat: str, act: str) -> str:
        """Play a call, a stop, or the reader's answer."""
        if seat == READER:
            self._answered(must(read_act(act, self.terse), ("answer",), "write your answer").text)
            return ""
        done = must(read_act(act, self.terse), ("call", "stop"), "write one call, or stop")
        if done.kind == "call":
            self._call(done)
        if done.kind == "stop" or self.turns + 1 >= self.most_acts:
            self.stopped = True
            if not self.reads:
                self._answered(answer_from(self.question.text, self.work.texts, self.terse))
        return ""

    def _call(self, done: Any) -> None:
        """Run a call and pay for the evidence pages that it reveals."""
        pages = self.question.evidence
        before = len(pages & {*self.work.read})
        self.call(PLANNER, done, self.work)
        if self.process and (found := len(pages & {*self.work.read}) - before):
            self.pay(PLANNER, "process", self.process * found / len(pages))

    def _answered(self, text: str) -> None:
        right = exact(text, self.question.answers)
        self.said = text
        self.pay(PLANNER, "answer", float(right and not (self.baseline and self._known())))
        self.end("answered", "Right." if right else "Wrong.")

    def _known(self) -> bool:
        """Return True if the scripted reader is right without any page."""
        return exact(answer_from(self.question.text, [], self.terse), self.question.answers)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the figures of `search`, the best possible earnings (`best`) and the `regret` against them."""
        best = self.best()
        earned = self.payoffs()[PLANNER] - self._totals[PLANNER].get("process", 0.0)
        return {**super().figures(), "best": best, "regret": best - earned}

    def best(self) -> float:
        """Return the best possible earnings: the scripted answer minus its calls, or stopping at once.

        Calls are those of the player `reader`, which searches and, if needed, opens each page.
        """
        worth = float(not (self.baseline and self._known()))
        at_once = worth * self._known()
        calls, right = planner_players.effort(self)
        return max(at_once, worth * right - self.cost * calls)

    @property
    def floor(self) -> float:
        """Measured success rate of the player `random`, which searches random names and stops."""
        game, right = self.clone(), 0.0
        for seed in range(FLOOR_DEALS):
            right += planner_players.at_random(game, seed)
        return right / FLOOR_DEALS
