"""Search game: one seat looks things up in a library of invented pages and answers a question."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import choice
from simulators.base import Answer
from simulators.search import players
from simulators.search.acts import must, read_act, tools_of
from simulators.search.base import LibraryGame, as_record, question_from
from simulators.search.pages import render
from simulators.search.questions import NONE
from simulators.search.scoring import exact, f1, normalise

SOLVER = "solver"
FLOOR_DEALS = 400


class Search(LibraryGame):
    """Search game of one seat, which looks up the answer to a question in a library of invented pages.

    Acts: search(query), open(title), ANSWER text; `ANSWER none` where no page has the answer. Options besides
    LibraryGame's (`simulators.search.base`): pay "exact" (1 for an exact match) or "f1" (of words), both as in SQuAD's
    script. Reward parts: `answer`; `cost`, of each call.
    """

    name = "search"
    seats: tuple[str, ...] = (SOLVER,)
    metadata: ClassVar[dict[str, Any]] = {"name": "search_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"answer": "1 for the right answer", "cost": "of a call"}
    players: Mapping[str, Callable[[Any, int], Answer]] = players.PLAYERS

    def __init__(self, *, pay: Literal["exact", "f1"] = "exact", **options: Any) -> None:
        self.paid = choice("pay", pay, "exact", "f1")
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the match's world and question, or take the option `question`, a dict from `as_record`."""
        self.choose_library(rng)
        if "question" in options:
            self.question = question_from(options["question"])
        else:
            self.question = self.draw_question(rng)
        self.work = self.session()
        self.said: str | None = None

    def rules(self) -> str:
        """Return the tools and acts as text for the player."""
        if self.terse:
            return "?words searches, =words answers, =none: no answer."
        return (
            "Answer a question from the pages of a library; nobody knows the answer without them. "
            f"Tools, one call at a time, at most {self.budget.searches} searches:\n{self.tools()}\n"
            f"ANSWER text ends the match: a name, a number, or {NONE} where no page says."
        )

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of the solver's tools, none in terse mode."""
        return [tool.definition for tool in tools_of(self.work)] if seat == SOLVER and not self.terse else ()

    def public(self) -> dict[str, Any]:
        """Return `question`, its text, and `left`, the remaining calls by tool."""
        return {"question": self.question.text, "left": dict(self.work.left)}

    def private(self, seat: str) -> dict[str, Any]:
        """Return `found`, the titles that searches have shown."""
        return {"found": list(self.work.found)}

    def legal(self, seat: str) -> list[str]:
        """Return useful calls, and answers from names seen so far, as acts. Other acts may be legal too."""
        names = self.names_read(self.work, self.question.text)
        return [*self.listed_calls(self.work, names), *self.listed_answers(names)]

    def play(self, seat: str, act: str) -> str:
        """Run one call and return "", or score an answer, end the match and return the act.

        The match also ends if no acts are left. Raises IllegalAct for any other act.
        """
        usage = "?words or =answer" if self.terse else "write one call of a tool, or ANSWER and a text"
        done = must(read_act(act, self.terse), ("call", "answer"), usage)
        if done.kind == "call":
            self.call(seat, done, self.work)
            if self.turns + 1 >= self.most_acts:
                self.end("turns", "No turns are left, and nothing was answered.")
            return ""
        self._answered(done.text)
        return act.strip()

    def _answered(self, text: str) -> None:
        """Pay the seat the answer's score, exact match or F1, and end the match."""
        self.said = text
        score = exact(text, self.question.answers) if self.paid == "exact" else f1(text, self.question.answers)
        self.pay(self.seats[0], "answer", float(score))
        self.end("answered", "Right." if exact(text, self.question.answers) else "Wrong.")

    def figures(self) -> dict[str, float | bool | str]:
        """Return figures for the report: `score` and `success` (exact match), `f1`, and statistics of the search.

        `recall` is the share of evidence pages that were read. Also `calls`, `searches` and `opens`, and the question's
        `hops`, `sort` and right `answer`.
        """
        question, work = self.question, self.work
        said = self.said or ""
        right = exact(said, question.answers)
        recall = len(question.evidence & set(work.read)) / len(question.evidence) if question.evidence else 1.0
        return {
            "score": float(right),
            "success": right,
            "f1": f1(said, question.answers),
            "recall": recall,
            "calls": work.calls,
            "searches": len(work.queries),
            "opens": work.opened,
            "hops": question.hops,
            "sort": question.sort,
            "answer": question.answer,
        }

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the texts that give the answer away (`way`: answer, evidence titles) and, unless terse, the `program`.

        Texts in the question or already shown are left out. Returns {} for a corpus's questions, comparisons and
        counts.
        """
        question, world = self.question, self.library.world
        if world is None or question.program is None or question.sort in ("compare", "count"):
            return {}
        secrets = {text for text in (*question.evidence, question.answer) if text != NONE and len(text) > 1}
        if self.terse:  # single letters stand in any text: the words of its facts do not
            secrets |= {word for fact in question.evidence for word in render(world, fact).split() if word[0].isupper()}
        texts = tuple(sorted(text for text in secrets if text not in question.text and not self.work.has_shown(text)))
        program = () if self.terse else (str(question.program),)
        return {"way": texts, "program": program}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options of the same question with two right answers, which the seat never learns."""
        record = as_record(self.question)
        return {"question": {**record, "answers": ["one"]}}, {"question": {**record, "answers": ["two"]}}

    @property
    def floor(self) -> float:
        """Probability that a random one of `candidates()` is right, averaged over 400 drawn questions."""
        game, rng, total = self.clone(), np.random.default_rng(0), 0.0
        for _ in range(FLOOR_DEALS):
            game.choose_library(rng)
            question = game.draw_question(rng)
            counts = _normalised(game.candidates())
            total += sum(counts[each] for each in {*map(normalise, question.answers)}) / counts.total()
        return total / FLOOR_DEALS


@functools.lru_cache(maxsize=4)
def _normalised(candidates: tuple[str, ...]) -> Counter[str]:
    """Count how often each normalised answer occurs among the candidates."""
    return Counter(map(normalise, candidates))
