"""Search planner game: choose searches for a reader that cannot search (AI-SearchPlanner)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import choice, flag, number
from simulators.base import Script
from simulators.person import Speech
from simulators.search import planner_players
from simulators.search.acts import read_act, require_kind
from simulators.search.players import find_answer
from simulators.search.questions import Question
from simulators.search.scoring import is_exact
from simulators.search.search import FLOOR_DEALS, Search

PLANNER, READER = "planner", "reader"


class SearchPlanner(Search):
    """Game of a planner, which searches and reads pages, and a reader, which answers only from these pages.

    Acts: the planner's search, open, STOP; then the reader answers. Options in addition to Search's:
    reader: "script" (answers from the facts on the pages) or "seat" (a policy, such as a frozen one, in its own seat).
    process: reward for reading all evidence pages; each call is paid the share of the pages that it shows first.
    baseline: whether a right answer pays nothing if the scripted reader is right without any page.
    team: whether the reader's seat is also paid for a right answer.

    Reward parts: `answer`, 1 for the reader's right answer; `process`; `cost` of each call. They follow
    AI-SearchPlanner's outcome + lambda process - alpha cost, whose constants are not published. The report's `best` is
    the payoff of the player `best`, which searches step by step if that costs less than a right answer pays.
    """

    name = "search_planner"
    seats: tuple[str, ...] = (PLANNER,)
    metadata: ClassVar[dict[str, Any]] = {"name": "search_planner_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "answer": "1 for the reader's right answer", "process": "a page that the answer rests on", "cost": "of a call",
    }  # fmt: skip
    speeches: ClassVar[tuple[Speech, ...]] = ("script",)
    players: Mapping[str, Callable[[Any, int], Script]] = planner_players.PLAYERS

    def __init__(
        self,
        *,
        reader: Literal["script", "seat"] = "script",
        process: float = 0.0,
        baseline: bool = False,
        team: bool = False,
        **options: Any,
    ) -> None:
        self.has_reader_seat = choice("reader", reader, "script", "seat") == "seat"
        self.team = flag("team", team)
        if self.team and not self.has_reader_seat:
            raise ValueError('reader must be "seat" if team is true: a script is not paid')
        self.process, self.baseline = number("process", process), flag("baseline", baseline)
        if self.has_reader_seat:
            self.seats = (PLANNER, READER)
        super().__init__(**options)
        self.cooperative = self.team and not (self.process or self.cost)
        if self.library.world is None and not self.has_reader_seat:
            raise ValueError('reader must be "seat" if pages is a file: the script reads only generated pages')

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a world and question as `Search` does, or take the option `question`. The planner moves first."""
        super().set_up(rng, options)
        self.stopped = False

    def is_in_split(self, question: Question) -> bool:
        """Return True if a question is in the split and its evidence can be found within the budget (`is_findable`)."""
        return super().is_in_split(question) and self.is_findable(question)

    def rules(self) -> str:
        """Return the tools, acts and pay as text for both seats."""
        if self.terse:
            return "?words searches, . stops."
        return (
            "The planner searches a library for what a question asks; then a reader answers it from the pages that "
            f"were read, and nothing else. Each call costs {self.cost:g}, a right answer pays 1. Tools, one call at a "
            f"time, at most {self.budget.searches} searches:\n{self.describe_tools()}\nThe planner ends with STOP. "
            "The reader writes ANSWER and a text."
        )

    def private(self, seat: str) -> dict[str, Any]:
        """Return {"found": titles in search results} for the planner, and {"pages": texts that it read} for the reader.

        `pages` is [] until the planner has stopped.
        """
        if seat == PLANNER:
            return super().private(seat)
        return {"pages": self.session.texts if self.stopped else []}

    def legal(self, seat: str) -> list[str] | None:
        """Return the planner's useful calls and its stop, or the reader's likely answers. Other acts may be legal."""
        names = self.list_names_read(self.session, self.question.text)
        if seat == READER:
            return self.list_answers(names)
        return [*self.list_calls(self.session, names), "." if self.terse else "STOP"]

    def next_seat(self, seat: str) -> str:
        """Return the seat to move: the planner, or once it has stopped the reader, if that is a seat."""
        return READER if self.stopped and self.has_reader_seat else PLANNER

    def play(self, seat: str, act: str) -> str:
        """Run the planner's call, let it stop, or score the reader's answer. Returns "".

        A scripted reader answers as soon as the planner stops, or has no acts left. Raises IllegalAct for an act of
        another kind.
        """
        if seat == READER:
            self._take_answer(require_kind(read_act(act, self.terse), ("answer",), "write your answer").text)
            return ""
        parsed = require_kind(read_act(act, self.terse), ("call", "stop"), "write one call, or stop")
        if parsed.kind == "call":
            self._call(parsed)
        if parsed.kind == "stop" or self.turns + 1 >= self.max_acts:
            self.stopped = True
            if not self.has_reader_seat:
                self._take_answer(find_answer(self.question.text, self.session.texts, self.terse))
        return ""

    def _call(self, act: Any) -> None:
        """Run the planner's call, and pay `process` times the share of the evidence pages that it read first."""
        pages = self.question.evidence
        before = len(pages & {*self.session.read})
        self.call(PLANNER, act, self.session)
        if self.process and (found := len(pages & {*self.session.read}) - before):
            self.pay(PLANNER, "process", self.process * found / len(pages))

    def _take_answer(self, text: str) -> None:
        right = is_exact(text, self.question.answers)
        self.answer_text = text
        for seat in self.seats if self.team else (PLANNER,):
            self.pay(seat, "answer", float(right and not (self.baseline and self._is_known())))
        self.end("answered", "Right." if right else "Wrong.")

    def _is_known(self) -> bool:
        """Return True if the scripted reader answers correctly without any page."""
        return is_exact(find_answer(self.question.text, [], self.terse), self.question.answers)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the figures of `Search`, and `best` (see `compute_best`) and `regret`.

        `regret` is `best` minus the planner's payoff without the part `process`.
        """
        best = self.compute_best()
        payoff = self.payoffs()[PLANNER] - self._totals[PLANNER].get("process", 0.0)
        return {**super().figures(), "best": best, "regret": best - payoff}

    def compute_best(self) -> float:
        """Return the higher payoff of two plans: reading like the player `reader`, or stopping at once.

        The scripted reader gives the answer in both. The cost of the calls is deducted.
        """
        pay = float(not (self.baseline and self._is_known()))
        calls, right = planner_players.measure_effort(self)
        return max(pay * self._is_known(), pay * right - self.cost * calls)

    @property
    def floor(self) -> float:
        """Success rate of the player `random`, which searches random names and stops, on `FLOOR_DEALS` matches."""
        game, right = self.clone(), 0.0
        for seed in range(FLOOR_DEALS):
            right += planner_players.succeeds_at_random(game, seed)
        return right / FLOOR_DEALS
