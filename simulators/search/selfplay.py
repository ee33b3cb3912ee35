"""Search self-play (SSP): a proposer searches and writes a question with a given answer, solvers search for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, number, to_one_line, whole_number
from simulators.base import PAYS, Script, SimulatorFault
from simulators.search import checker, selfplay_players
from simulators.search.acts import Act, Kind, read_act, require_kind, write_question
from simulators.search.base import LibraryGame, as_record, restore_question
from simulators.search.checker import (
    CHECKS,
    Check,
    CheckError,
    Requirements,
    is_sound,
    list_possible_programs,
    mix_with_others,
    read_checks,
    require_readable,
)
from simulators.search.programs import Program
from simulators.search.questions import Question, draw_question
from simulators.search.scoring import is_exact
from simulators.search.session import Session

PROPOSER, READER = "proposer", "reader"
DEALS = 1_000
MAX_LISTED = 4
"""Programs tried when listing valid questions."""


class SearchSelfplay(LibraryGame):
    """Search self-play (SSP): a proposer writes a question with a given answer, and solvers search for that answer.

    Acts: the proposer's search, open, QUESTION text PROGRAM program; the solvers' search, open, ANSWER text. Options
    in addition to LibraryGame's (`simulators.search.base`; `hops` is the minimum for a question):
    solvers: number of solvers of each question.
    pay: "hard" (1 - s, where s is the share of solvers that are right; SSP) or "frontier" (4 s (1 - s)).
    rejected: price of a rejected question. checks: checks of a question, by default all (`simulators.search.checker`).
    reader: reader of the check `gate`: "script" or "seat" (a seat `reader`). noise: random pages mixed in for it.
    rounds: questions per match. reuse: whether a question of an earlier round replaces a rejected one.

    A proposer whose question is rejected may repair it once with `illegal: retry`. Reward parts: `right` of a solver,
    `challenge` and `rejected` of the proposer, `cost` of a call.
    """

    name = "search_selfplay"
    metadata: ClassVar[dict[str, Any]] = {"name": "search_selfplay_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "right": "1 for a solver's right answer", "challenge": "the proposer's, by `pay`",
        "rejected": "a question that does not count", "cost": "of a call",
    }  # fmt: skip
    players: Mapping[str, Callable[[Any, int], Script]] = selfplay_players.PLAYERS

    def __init__(
        self,
        *,
        solvers: int = 4,
        pay: Literal["hard", "frontier"] = "frontier",
        checks: Sequence[Check] = CHECKS,
        reader: Literal["script", "seat"] = "script",
        noise: int = 4,
        rejected: float = 0.0,
        rounds: int = 1,
        reuse: bool = True,
        hops: int | Sequence[int] = 2,
        penalty: float = 0.0,
        **options: Any,
    ) -> None:
        self.solvers = tuple(f"solver_{n + 1}" for n in range(whole_number("solvers", solvers, least=1, most=64)))
        self.has_reader_seat = choice("reader", reader, "script", "seat") == "seat"
        self.seats = (PROPOSER, *self.solvers, *([READER] if self.has_reader_seat else []))
        self.pay_rule = choice("pay", pay, *PAYS)
        self.checks = read_checks(checks)
        self.noise, self.fine = whole_number("noise", noise, 0, 20), number("rejected", rejected)
        self.rounds, self.reuse = whole_number("rounds", rounds, 1, 1000), flag("reuse", reuse)
        if isinstance(options.get("pages"), str):
            raise ValueError("pages must be a number: questions about a file's pages cannot be checked")
        super().__init__(hops=hops, penalty=penalty, **options)
        if set(self.sorts) != {"chain"}:
            raise ValueError("sorts must be chain: a proposer is given the answer")

    # The deal, rules and views.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Start round 1: draw the answer to ask for, or take it from the option `example`, a question as a dict."""
        self.chance = rng
        self.choose_library(rng)
        self.pool: list[Question] = []
        """Accepted questions of earlier rounds."""
        self._solve_rates: list[float] = []
        self._accepted: list[Question] = []
        self._reuse_count = self._fault_count = self._sound_count = 0
        self._round = 0
        self._cached_questions: tuple[tuple[int, int], list[str]] = ((0, 0), [])
        """Cache: (round, pages read) and the valid questions at that point."""
        self.rejection = ""
        self._begin(restore_question(options["example"]) if "example" in options else self._draw_example())

    def rules(self) -> str:
        """Return the rules as text, equal for all seats."""
        if self.terse:
            return "?words searches, !program asks, =words answers."
        payment = "the more of them fail" if self.pay_rule == "hard" else "most when half of them are right"
        return (
            f"The proposer is given an answer, searches for what leads to it, and writes a question; the "
            f"{len(self.solvers)} solvers search for its answer, each alone. Tools, one call at a time, at most "
            f"{self.budget.searches} searches each:\n{self.describe_tools()}\n"
            "The proposer ends with QUESTION text PROGRAM program, such as: QUESTION What is the seat of the employer "
            "of NAME? PROGRAM NAME > employer > seat (^author goes backwards). It must rest on pages that it read, "
            "have just the one answer, and not name it. A solver ends with ANSWER text, and is paid for the right one; "
            f"the proposer is paid {payment}."
        )

    def public(self) -> dict[str, Any]:
        """Return `question`, its text once accepted ("" before), and `round`, from 1."""
        question = self.question.text if self.question and self._mover != READER else ""
        return {"question": question, "round": min(self._round, self.rounds)}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's private facts: `left` calls, `found` titles, the proposer's task, the reader's pages."""
        if seat == READER:
            return (
                {"question": self.question.text, "pages": list(self.reader_pages)}
                if self.question and self.reader_pages
                else {}
            )
        session = self.sessions.get(seat)
        own = {"left": dict(session.remaining_calls), "found": list(session.found)} if session else {}
        if seat == PROPOSER:
            return {"answer": self.requirements.answer, "hops": self.requirements.hops, **own}
        return own

    def legal(self, seat: str) -> list[str] | None:
        """Return useful calls, likely answers or the proposer's valid questions. None for the reader or if empty."""
        if seat == READER:
            return None
        text = self.question.text if self.question and seat != PROPOSER else self.requirements.answer
        names = self.list_names_read(self.session, text)
        calls = self.list_calls(self.session, names)
        return [*calls, *(self._valid_questions() if seat == PROPOSER else self.list_answers(names))] or None

    def next_seat(self, seat: str) -> str:
        """Return the seat to move, the same until it has asked or answered."""
        return self._mover

    def play(self, seat: str, act: str) -> str:
        """Play a call, question or answer. Returns "": other seats see no acts. Raises IllegalAct for other acts."""
        last: Kind = "question" if seat == PROPOSER else "answer"
        kinds: tuple[Kind, ...] = (last,) if seat == READER else ("call", last)
        parsed = require_kind(read_act(act, self.terse), kinds, f"write {'one call or ' * (seat != READER)}your {last}")
        self._acts += 1
        if parsed.kind == "call":
            self.call(seat, parsed, self.session)
            if self._acts >= self.max_acts:
                self._give_up(seat)
        elif seat == PROPOSER:
            self._propose(parsed)
        elif seat == READER:
            self._take_reader_answer(is_exact(parsed.text, self._question.answers))
        else:
            self._take_answer(seat, is_exact(parsed.text, self._question.answers))
        return ""

    def figures(self) -> dict[str, float | bool | str]:
        """Return figures for the report; `accepted`, `reused` and `score` (right answers) are shares over all rounds.

        `s` is the share of right answers over rounds played, `sound` the share of accepted questions whose words
        have exactly the claimed answer on all facts, and `hops` their mean. Also `success`, `calls`, `checker_faults`,
        the last `rejection` and the last `question`.
        """
        accepted_count, score = len(self._accepted), sum(self._solve_rates) / self.rounds
        return {
            "score": score,
            "success": score == 1.0,
            "s": sum(self._solve_rates) / max(len(self._solve_rates), 1),
            "accepted": accepted_count / self.rounds,
            "sound": self._sound_count / max(accepted_count, 1),
            "reused": self._reuse_count / self.rounds,
            "hops": sum(question.hops for question in self._accepted) / max(accepted_count, 1),
            "calls": sum(session.calls for session in self.sessions.values()),
            "checker_faults": self._fault_count,
            "rejection": self.rejection,
            "question": self._accepted[-1].text if self._accepted else "",
        }

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return {"example": program of the question that the proposer could ask}, or {} for one-letter answers."""
        # Any text contains single letters.
        program = None if len(self.requirements.answer) == 1 else self.example.program
        return {"example": (program.terse if self.terse else str(program),)} if program else {}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options of two deals with different answers. None for the proposer, which knows the answer."""
        if seat == PROPOSER:
            return None
        other = self._draw_example()
        while other.answer == self.example.answer:
            other = self._draw_example()
        return {"example": as_record(self.example)}, {"example": as_record(other)}

    floor = 0.0  # a random proposer has read no evidence page

    # The seats.

    @property
    def session(self) -> Session:
        """Search session of the seat to move."""
        return self.sessions[self._mover]

    @property
    def _question(self) -> Question:
        if self.question is None:
            raise SimulatorFault("a seat is to answer, but there is no question")
        return self.question

    def _draw_example(self) -> Question:
        """Draw a question that a proposer could ask: new, in the split, about a thing, its evidence within budget."""
        if (world := self.library.world) is None:
            raise SimulatorFault("there are no facts to ask about")
        for _ in range(DEALS):
            question = draw_question(world, self.chance, ["chain"], self.hops, self.backwards)
            is_repeat = question.text in {each.text for each in self._accepted}
            if (
                world.kind(question.answer)
                and not is_repeat
                and self.is_in_split(question)
                and self.is_findable(question)
            ):
                return question
        raise SimulatorFault(f"none of {DEALS:,} questions can be written with these calls in the split {self.split}")

    def _begin(self, example: Question) -> None:
        """Start a round: give the proposer the example's answer and a new session, and let it move."""
        self.example, self.requirements = example, Requirements(example.answer, example.hops)
        self.question: Question | None = None
        self.reader_pages: tuple[str, ...] = ()
        self.sessions = {PROPOSER: self.make_session()}
        self._results: list[bool] = []
        self._round += 1
        self._move_to(PROPOSER)

    def _move_to(self, seat: str) -> None:
        self._mover, self._acts, self.agent_selection = seat, 0, seat

    def _valid_questions(self) -> list[str]:
        """Return up to 4 valid questions about the pages that the proposer has read, as acts (cached)."""
        key = (self._round, len(self.sessions[PROPOSER].read))
        if self._cached_questions[0] != key:
            self._cached_questions = (
                key,
                self._filter_passing(list_possible_programs(self.sessions[PROPOSER], self.requirements)[:MAX_LISTED]),
            )
        return list(self._cached_questions[1])

    def _filter_passing(self, programs: Sequence[Program]) -> list[str]:
        acts = []
        for program in programs:
            parsed = read_act(write_question(program, self.terse), self.terse)
            try:
                self._check(parsed or Act("question"), noise=())
            except CheckError:
                continue
            acts.append(write_question(program, self.terse))
        return acts

    # The question.

    def _propose(self, parsed: Act) -> None:
        noise = mix_with_others(self.sessions[PROPOSER], self.noise, self.chance) if "gate" in self.checks else ()
        try:
            question = self._check(parsed, noise)
        except CheckError as why:
            self.rejection = str(why)
        except Exception as error:  # noqa: BLE001 a question that the checker fails on never counts
            self._fault_count += 1
            self.rejection = f"the checker cannot check it ({type(error).__name__})"
        else:
            self.question, self.rejection = question, ""
            if "gate" in self.checks and self.has_reader_seat:
                self.reader_pages = noise
                self._move_to(READER)
            else:
                self._accept()
            return
        raise IllegalAct(self.rejection)

    def _check(self, parsed: Act, noise: Sequence[str]) -> Question:
        """Return the question if it passes all checks, except that of a reader seat. Raises CheckError otherwise."""
        session = self.sessions[PROPOSER]
        if any(parsed.text == question.text for question in self._accepted):
            raise CheckError("it was asked before")
        question = checker.check(parsed.text, parsed.program, self.requirements, session, self.checks)
        if not self.is_in_split(question):
            raise CheckError("it is kept for another split")
        if "gate" in self.checks and not self.has_reader_seat:
            require_readable(question, list(noise or session.texts), self.terse)
        return question

    def _take_reader_answer(self, is_right: bool) -> None:
        self.reader_pages = ()
        if is_right:
            self._accept()
        else:
            self.rejection = "the reader does not find the answer on the pages that were read"
            self._reject()

    def _accept(self) -> None:
        self._accepted.append(self._question)
        self._sound_count += is_sound(self._question, self.library)
        self._start_solving()

    def _reject(self) -> None:
        """Fine the proposer, then let solvers try an earlier question if `reuse` allows, else end the round."""
        self.pay(PROPOSER, "rejected", -self.fine)
        self.question = None
        if self.reuse and self.pool:
            self.question = self.pool[int(self.chance.integers(len(self.pool)))]
            self._reuse_count += 1
            self._start_solving()
        else:
            self._end_round(f"No question: {self.rejection}.")

    def _refuse(self, seat: str, action: object, reason: str) -> None:
        """Refuse an illegal act as other games do, except that the proposer's last try ends only the round."""
        if seat != PROPOSER or (self.illegal == "retry" and not self._has_retried):
            super()._refuse(seat, action, reason)
            return
        self.invalid += 1
        self._valid[seat], self._has_retried = False, False
        self.rejection = self.rejection or reason
        self._transcript.append(f"{seat} (rejected): {to_one_line(str(action)[:400])}")
        self._reject()

    # The answers.

    def _start_solving(self) -> None:
        self._results = []
        self.sessions |= {seat: self.make_session() for seat in self.solvers}
        self._move_to(self.solvers[0])

    def _give_up(self, seat: str) -> None:
        """End the turn of a seat without acts left: reject the missing question, or count the answer as wrong."""
        if seat == PROPOSER:
            self.rejection = "no turns were left to ask it"
            self._reject()
        else:
            self._take_answer(seat, False)

    def _take_answer(self, seat: str, is_right: bool) -> None:
        self._results.append(is_right)
        self.pay(seat, "right", float(is_right))
        if len(self._results) < len(self.solvers):
            self._move_to(self.solvers[len(self._results)])
            return
        share = sum(self._results) / len(self._results)
        self._solve_rates.append(share)
        if self._accepted and self._question is self._accepted[-1] and self._question not in self.pool:
            self.pay(PROPOSER, "challenge", PAYS[self.pay_rule](share))
            self.pool.append(self._question)
        self._end_round(f"{sum(self._results)} of {len(self._results)} were right.")

    def _end_round(self, summary: str) -> None:
        """Start the next round and tell the proposer the summary, or end the match after the last round."""
        if self._round == self.rounds:
            self.end("played", summary)
        else:
            self.tell(summary, PROPOSER)
            self._begin(self._draw_example())
