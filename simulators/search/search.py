"""Search game: one seat looks things up in a library of invented pages and answers a question."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, to_one_line
from simulators.base import Script
from simulators.person import Speech
from simulators.played import LEAVING, Faults, PersonGame
from simulators.search import players
from simulators.search.acts import MAX_ANSWER, make_tools, read_act, require_kind
from simulators.search.asker import ASKER, Asker, with_askers
from simulators.search.base import LibraryGame, as_record, restore_question
from simulators.search.pages import render
from simulators.search.questions import NONE
from simulators.search.scoring import compute_f1, is_exact, normalise

SOLVER = "solver"
FLOOR_DEALS = 400


class Search(PersonGame, LibraryGame):
    """Search game of one seat, which looks up the answer to a question in a library of invented pages.

    Acts: search(query), open(title), ANSWER text; `ANSWER none` if no page has the answer. With person "played" a
    second seat, the asker, first words the question and then replies to ASK text (`simulators.search.asker`). Options
    in addition to LibraryGame's (`simulators.search.base`) and PersonGame's: pay, "exact" (1 for an exact match) or
    "f1" (of words), both as in SQuAD's script. Reward parts: `answer`; `cost`, of each call.
    """

    name = "search"
    seats: tuple[str, ...] = (SOLVER,)
    metadata: ClassVar[dict[str, Any]] = {"name": "search_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "answer": "1 for the right answer", "cost": "of a call", "wrong": "false statements of the asker",
    }  # fmt: skip
    players: Mapping[str, Callable[[Any, int], Script]] = with_askers(players.PLAYERS)
    person_seat = ASKER
    speeches: ClassVar[tuple[Speech, ...]] = ("script", "played")

    def __init__(self, *, pay: Literal["exact", "f1"] = "exact", **options: Any) -> None:
        self.scoring = choice("pay", pay, "exact", "f1")
        super().__init__(**options)
        if self.is_played and self.terse:
            raise ValueError('terse must be false if person is "played"')

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the match's world and question, or take the option `question`, a dict from `as_record`."""
        self.choose_library(rng)
        if "question" in options:
            self.question = restore_question(options["question"])
        else:
            self.question = self.draw_question(rng)
        self.session = self.make_session()
        self.answer_text: str | None = None
        if self.is_played:
            self.asker, self.agent_selection = Asker(self.question, self.library), ASKER

    def rules(self) -> str:
        """Return the tools and acts as text for the player."""
        if self.terse:
            return "?words searches, =words answers, =none: no answer."
        return (
            "Answer a question from the pages of a library; nobody knows the answer without them. "
            f"Tools, one call at a time, at most {self.budget.searches} searches:\n{self.describe_tools()}\n"
            f"ANSWER text ends the match: a name, a number, or {NONE} where no page says."
            f"{' ASK text asks what the question means.' if self.is_played else ''}"
        )

    @property
    def question_text(self) -> str:
        """The question as the solver knows it; "" until a played asker has spoken."""
        return self.asker.first_words if self.is_played else self.question.text

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of the solver's tools; () in terse mode and for the asker."""
        return [tool.definition for tool in make_tools(self.session)] if seat == SOLVER and not self.terse else ()

    def public(self) -> dict[str, Any]:
        """Return `question`, its text, and `left`, the remaining calls by tool."""
        return {"question": self.question_text, "left": dict(self.session.remaining_calls)}

    def private(self, seat: str) -> dict[str, Any]:
        """Return `found`, the titles that searches have shown; for the asker `Asker.facts`."""
        if seat == ASKER:
            return self.asker.facts()
        return {"found": list(self.session.found)}

    def legal(self, seat: str) -> list[str] | None:
        """Return useful calls, and answers from names seen so far. Other acts may be legal. None for the asker."""
        if seat == ASKER:
            return None
        names = self.list_names_read(self.session, self.question_text)
        return [*self.list_calls(self.session, names), *self.list_answers(names)]

    def play(self, seat: str, act: str) -> str:
        """Play an act and return its text for the other seat: "" after a call, the text of an answer or a question.

        An answer is scored and ends the match. The match also ends if no acts are left. Raises IllegalAct for other
        texts.
        """
        if seat == ASKER:
            return self._hear(to_one_line(act, MAX_ANSWER))
        if self.is_played and act.startswith("ASK ") and (text := to_one_line(act[4:], MAX_ANSWER)):
            return self._ask(text)
        usage = "?words or =answer" if self.terse else "write one call of a tool, or ANSWER and a text"
        parsed = require_kind(read_act(act, self.terse), ("call", "answer"), usage)
        if parsed.kind == "call":
            self.call(seat, parsed, self.session)
            self._end_if_out_of_turns()
            return ""
        self._take_answer(parsed.text)
        return to_one_line(act, MAX_ANSWER) if self.is_played else act.strip()

    def next_seat(self, seat: str) -> str:
        """Return the asker's seat while it must speak, else the solver's."""
        return ASKER if self.is_played and self.asker.due else self.seats[0]

    def check_person(self, text: str) -> Faults:
        """Return the faults of a played asker's text (`Asker.check`)."""
        return self.asker.check(text)

    def _end_if_out_of_turns(self) -> None:
        if self.turns + 1 - (self.asker.turns if self.is_played else 0) >= self.max_acts:
            self.end("turns", "No turns are left, and nothing was answered.")

    def _ask(self, text: str) -> str:
        if self.asker.has_left:
            raise IllegalAct("the asker has left")
        self.asker.due = True
        self._end_if_out_of_turns()
        return f"ASK {text}"

    def _hear(self, text: str) -> str:
        """Apply the asker's text if it is admitted, and return it for the solver.

        Returns "" for a text that is not admitted, and for the first one, because all seats see the question.
        """
        self.asker.turns += 1
        if not self.admit_text(text):
            return ""
        self.asker.due, self.asker.has_left = False, bool(LEAVING.search(text))
        if not self.asker.first_words:
            self.asker.first_words = text
            return ""
        return text

    def _take_answer(self, text: str) -> None:
        """Pay the seat the answer's score, exact match or F1, and end the match."""
        self.answer_text = text
        score = (
            is_exact(text, self.question.answers)
            if self.scoring == "exact"
            else compute_f1(text, self.question.answers)
        )
        self.pay(self.seats[0], "answer", float(score))
        self.end("answered", "Right." if is_exact(text, self.question.answers) else "Wrong.")

    def final_answer(self, seat: str) -> str:
        """Return the solver's answer, normalised for exact match; "" if it gave none."""
        return normalise(self.answer_text or "") if seat == self.seats[0] else ""

    def figures(self) -> dict[str, float | bool | str]:
        """Return figures for the report: `score` and `success` (exact match), `f1`, and statistics of the search.

        `recall` is the share of evidence pages that were read. The others are `calls`, `searches`, `opens`, and the
        question's `hops`, `sort` and right `answer`.
        """
        question, session = self.question, self.session
        answer = self.answer_text or ""
        right = is_exact(answer, question.answers)
        recall = len(question.evidence & set(session.read)) / len(question.evidence) if question.evidence else 1.0
        return {
            "score": float(right),
            "success": right,
            "f1": compute_f1(answer, question.answers),
            "recall": recall,
            "calls": session.calls,
            "searches": len(session.queries),
            "opens": session.opened,
            "hops": question.hops,
            "sort": question.sort,
            "answer": question.answer,
        }

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the texts that reveal the answer (`way`: answer, evidence titles) and, unless terse, the `program`.

        Texts in the question or already shown are left out. Returns {} for comparisons, counts, and questions about a
        corpus.
        """
        question, world = self.question, self.library.world
        if world is None or question.program is None or question.sort in ("compare", "count"):
            return {}
        secrets = {text for text in (*question.evidence, question.answer) if text != NONE and len(text) > 1}
        if self.terse:  # any text contains single letters, but not the words of the facts
            secrets |= {word for fact in question.evidence for word in render(world, fact).split() if word[0].isupper()}
        texts = tuple(
            sorted(text for text in secrets if text not in question.text and not self.session.has_shown(text))
        )
        program = () if self.terse else (str(question.program),)
        return {"way": texts, "program": program}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options of two deals with the same question but different right answers."""
        record = as_record(self.question)
        return {"question": {**record, "answers": ["one"]}}, {"question": {**record, "answers": ["two"]}}

    @property
    def floor(self) -> float:
        """Mean probability over 400 drawn questions that a random one of `list_candidates()` is right."""
        game, rng, total = self.clone(), np.random.default_rng(0), 0.0
        for _ in range(FLOOR_DEALS):
            game.choose_library(rng)
            question = game.draw_question(rng)
            counts = _count_normalised(game.list_candidates())
            total += sum(counts[each] for each in {*map(normalise, question.answers)}) / counts.total()
        return total / FLOOR_DEALS


@functools.lru_cache(maxsize=4)
def _count_normalised(candidates: tuple[str, ...]) -> Counter[str]:
    """Count how often each normalised answer occurs among the candidates."""
    return Counter(map(normalise, candidates))
