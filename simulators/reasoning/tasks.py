"""Tasks of reasoning-gym as a single-seat game: one answer, retries, a second answer, or Python as a tool."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from games.base import IllegalAct, choice, flag, number, whole_number
from games.contracts import TOOL, View
from games.families.book import fold
from games.slow import offload
from simulators.base import Script
from simulators.confine.code import find_obstacle, run_python
from simulators.reasoning import gym, replies
from simulators.reasoning.task_game import PLAYERS, TaskGame
from simulators.reasoning.typed import strip_wording
from simulators.tools import Tool, read_calls, run

Protocol = Literal["single", "retry", "correct", "units", "code"]
SOLVER = "solver"
RIGHT, WRONG = "right", "wrong"
AGAIN = "Incorrect. Please think again."
CORRECT = (
    "There might be an error in the solution above because of lack of understanding of the question. "
    "Please correct the error, if any, and rewrite the solution."
)
MORE, GO_ON = "Wait", "Go on."
"""Last word of a reply that is to be continued, and the message that asks to continue (protocol "units")."""
TURNS: Mapping[str, int] = {"single": 1, "retry": 5, "correct": 2, "units": 5, "code": 5}
SUM = re.compile(r"[0-9+*/() -]+")
"""Arithmetic expressions that Python evaluates as the question means them."""
CALLS = ("gcd", "lcm")
"""Families whose task is the argument list of the function of that name in `math`."""


class Reasoning(TaskGame):
    """Single-seat game about a task of reasoning-gym. Acts: an answer, or a reply with code (protocol "code").

    If a reply has both code and an answer, the first of them counts. Options in addition to Simulator's:
    task: a family of reasoning-gym, a list of families, or families with settings (`level`: a step of the curriculum).
    stage: draw tasks from this many families, the first ones; None for all.
    protocol: "single" (one answer), "retry" (the player is told if an answer is wrong and tries again; UFO), "correct"
    (two answers, with a hint that there might be an error before the second; SCoRe), "units" (a reply that ends with
    "Wait" is followed by another, and the last answer counts; MinD) or "code" (Python code is run and its output shown;
    SimpleTIR, ReTool, ARTIST, R1-Code-Interpreter).
    max_turns: maximum number of replies. answer: format of the answer in an act, "plain", "boxed" or "tag". code: its
    format, "fence", "code" or "tool_call". partial: whether partly right answers get the scorer's score instead of 0.
    seconds, memory_mb, output_bytes: limits of code.

    Reward part `right`: the score of an answer, on the turn that gave it. Nobody is ever told the right answer.
    """

    name = "reasoning"
    seats: tuple[str, ...] = (SOLVER,)
    metadata: ClassVar[dict[str, Any]] = {"name": "reasoning_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {RIGHT: "the answer's score"}
    whole_acts = True

    def __init__(
        self,
        *,
        task: object = "chain_sum",
        stage: int | None = None,
        protocol: Protocol = "single",
        max_turns: int | None = None,
        answer: replies.AnswerFormat | None = None,
        code: replies.CodeFormat | None = None,
        partial: bool = False,
        seconds: float = 5.0,
        memory_mb: int = 512,
        output_bytes: int = 2000,
        **options: Any,
    ) -> None:
        self.protocol = choice("protocol", protocol, *get_args(Protocol))
        with_code = self.blocks = protocol == "code"  # code runs in a child process
        if max_turns is not None and protocol not in ("retry", "units", "code"):
            raise ValueError(f'max_turns goes with protocol "retry", "units" or "code", not with "{protocol}"')
        self.max_turns = whole_number("max_turns", TURNS[protocol] if max_turns is None else max_turns, least=1)
        needs_marks = protocol in ("units", "code")
        forms = [form for form in replies.ANSWERS if not (needs_marks and form == "plain")]
        self.answer = choice("answer", answer or ("boxed" if needs_marks else "plain"), *forms)
        if code is not None and not with_code:
            raise ValueError('code goes with protocol "code"')
        self.code = choice("code", code or "fence", *replies.CODES)
        self.partial = flag("partial", partial)
        if self.partial and protocol == "retry":
            raise ValueError('protocol "retry" tells right from wrong only: leave out partial')
        self.seconds = number("seconds", seconds, least=0.1)
        self.memory_mb = whole_number("memory_mb", memory_mb, least=64)
        self.output_bytes = whole_number("output_bytes", output_bytes, least=1)
        if with_code and (obstacle := find_obstacle()):
            raise ValueError(obstacle)
        self.tasks = gym.read_task_option(task)
        count = len(self.tasks)
        self.stage = count if stage is None else whole_number("stage", stage, least=1, most=count)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task of the split from the first `stage` families, and clear scores and counts."""

        def draw() -> gym.Task:
            family = list(self.tasks)[rng.integers(self.stage)]
            return gym.draw_task(family, self.tasks[family], rng)

        self.task: gym.Task = self.draw_entity(draw, lambda task: task.question)
        self._scores: list[float] = []
        self._last_answer = ""
        self._runs = self._failed_runs = self._unreadable = 0

    @property
    def turns_left(self) -> int:
        """Remaining replies, including the next one."""
        return self.max_turns - self.turns

    def rules(self) -> str:
        """Return the rules: how to answer, and how often. The question is not included, because it is a public fact."""
        intro = f"Answer the question: write {replies.SHOWN_ANSWER[self.answer]}."
        if self.protocol == "retry":
            return f"{intro} If it is wrong, you are told so and may answer again: {self.max_turns} answers in all."
        if self.protocol == "correct":
            return f"{intro} Then look at it once more and answer again; only the second answer is final."
        if self.protocol == "units":
            return f"{intro} End with {MORE} to go on: {self.max_turns} replies in all, and the last answer counts."
        if self.protocol == "code":
            return (
                f"{intro} Before that you may run Python: write\n{replies.SHOWN_CODE[self.code]}\nand you are shown "
                f"what it prints. Every block runs by itself, for at most {self.seconds:g} seconds, without network. "
                f"{self.max_turns} replies in all."
            )
        return intro

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definition of the tool `python` if code is sent by tool calls, else ()."""
        calls = self.protocol == "code" and self.code == "tool_call"
        return [Tool.of(self.python).definition] if calls else ()

    def public(self) -> dict[str, Any]:
        """Return `question`, `terse` (the bare task, if the question's wording is known), `family` and `turns_left`."""
        terse = strip_wording(self.task.family, self.task.question)
        return {
            "question": self.task.question, "terse": terse, "family": self.task.family, "turns_left": self.turns_left
        }  # fmt: skip

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return {"answer": …}, or {} if the answer is shorter than three characters, or in the question or rules."""
        answer = fold(self.task.answer)
        is_secret = len(answer) > 2 and answer not in fold(f"{self.task.question} {self.rules()}")
        return {"answer": (self.task.answer,)} if is_secret else {}

    def play(self, seat: str, act: str) -> str:
        """Score an answer, or run code and send its output to the seat; return "". Raises IllegalAct for neither."""
        block = replies.find_first_block(act, self.code) if self.protocol == "code" else None
        answer = replies.find_final_answer(act[: block.start] if block else act, self.answer)
        if answer is not None:
            self._take_answer(seat, answer, wants_more=act.rstrip().endswith(MORE))
        elif block is not None:
            self._run(block.text)
        else:
            code = f", or code: {replies.SHOWN_CODE[self.code]}" if self.protocol == "code" else ""
            raise IllegalAct(f"write {replies.SHOWN_ANSWER[self.answer]}{code}")
        return ""

    def _take_answer(self, seat: str, answer: str, wants_more: bool) -> None:
        scored = self.task.score(answer)
        self._unreadable += not scored.readable
        self._last_answer = answer
        self._scores.append(scored.value if self.partial else float(scored.value == 1.0))
        if self.protocol == "units" and wants_more and self.turns_left > 1:
            self.tell(GO_ON)
            return
        self.pay(seat, RIGHT, self._scores[-1])
        is_solved = self._scores[-1] == 1.0
        if self.protocol == "correct" and self.turns_left > 1:
            self.tell(CORRECT)
        elif self.protocol == "retry" and not is_solved and self.turns_left > 1:
            self.tell(AGAIN)
        else:
            self.end(RIGHT if is_solved else WRONG, "That is right." if is_solved else "That is wrong.")

    def final_answer(self, seat: str) -> str:
        """Return the solver's normalised final answer; "" if no answer ended the match."""
        return replies.normalise(self._last_answer) if seat == SOLVER and self.ended in (RIGHT, WRONG) else ""

    def python(self, code: str) -> str:
        """Run Python code and return what it prints.

        The output includes errors, and a note if a limit stopped the code. Both count as a failed run.
        """
        outcome = offload(
            run_python, code, seconds=self.seconds, memory_mb=self.memory_mb, output_bytes=self.output_bytes
        )
        self._failed_runs += bool(outcome.reason or outcome.stderr)
        spaced = outcome.observation().replace("\r\n", "\n").replace("\t", "    ")
        return "".join(char for char in spaced if char == "\n" or not unicodedata.category(char).startswith("C"))

    def _run(self, code: str) -> None:
        self._runs += 1
        if self.code == "tool_call":
            output = run([Tool.of(self.python)], read_calls(code, limit=1)[0], max_characters=self.output_bytes)
        else:
            output = self.python(code)
        if self.turns_left > 1:
            self.tell(output, sender=TOOL)
        else:
            self.end("turns", "No replies are left.")

    def figures(self) -> dict[str, float | bool | str]:
        """Return the match's figures.

        `score` is the final answer's score, 0 if no answer ended the match. `first` is the first answer's score, and
        `success` is True if `score` is 1. Counts are `answers`, `runs` of code, `failed_runs`, and `unreadable` answers
        (which the scorer could not or may not read). Also `family`, `question` and the right `answer`.
        """
        last = self._scores[-1] if self.ended in (RIGHT, WRONG) else 0.0
        return {
            "score": last,
            "success": last == 1.0,
            "first": self._scores[0] if self._scores else 0.0,
            "answers": len(self._scores),
            "runs": self._runs,
            "failed_runs": self._failed_runs,
            "unreadable": self._unreadable,
            "family": self.task.family,
            "question": self.task.question,
            "answer": self.task.answer,
        }

    @property
    def floor(self) -> float:
        """Success rate of the random player, estimated by `gym.estimate_chance`."""
        stage = dict(list(self.tasks.items())[: self.stage])
        return gym.estimate_chance(stage, self.max_turns if self.protocol == "retry" else 1)


def _make_coder(game: Reasoning, seed: int) -> Script:
    """Return a player that computes the answer with Python in protocol "code". In others it knows the answer."""

    def act(view: View) -> str:
        shown = [message.text for message in view.messages if message.sender == TOOL]
        if game.protocol != "code":
            return replies.write_answer(game.task.answer, game.answer)
        if shown:
            return replies.write_answer(shown[-1], game.answer)
        return replies.write_code(_write_program(game.task), game.code)

    return act


def _write_program(task: gym.Task) -> str:
    """Return Python code that prints the answer: computed for a sum, gcd or lcm, else as a literal."""
    terse = strip_wording(task.family, task.question)
    if task.family in CALLS and terse != task.question:
        return f"import math\nprint(math.{task.family}({terse}))"
    return f"print({terse if SUM.fullmatch(terse) else repr(task.answer)})"


def _make_reckoner(game: Reasoning, seed: int) -> Script:
    """Return a player that writes a sum's running totals before the answer: the counterpart in words of `coder`.

    It knows the answers to other families' tasks. If acts are plain answers, it gives only the answer.
    """

    def act(view: View) -> str:
        totals = _list_totals(game.task) if game.answer != "plain" else []
        return "".join([*totals, replies.write_answer(game.task.answer, game.answer)])

    return act


def _make_rethinker(game: Reasoning, seed: int) -> Script:
    """Return a player that computes a sum two to four times in one reply, with "Wait" between the attempts.

    The first attempt is a guess with probability 0.3; the others are right. It knows the answers to other tasks.
    """
    rng = np.random.default_rng([seed, 2])

    def act(view: View) -> str:
        totals, answer = "".join(_list_totals(game.task)), game.task.answer
        attempts = [(totals, answer)] * int(rng.integers(2, 5))
        if rng.random() < 0.3:
            attempts[0] = "", game.guess(rng)
        return f" {MORE}\n".join(working + replies.write_answer(result, game.answer) for working, result in attempts)

    return act


def _list_totals(task: gym.Task) -> list[str]:
    """Return a chain sum's running totals as lines such as `8 + 3 = 11`; [] for other tasks."""
    terse = strip_wording(task.family, task.question).split()
    numbers, signs = terse[::2], terse[1::2]
    if task.family != "chain_sum" or len(numbers) != len(signs) + 1:
        return []
    total, lines = int(numbers[0]), list[str]()
    for sign, term in zip(signs, numbers[1:], strict=True):
        after = total + int(term) * (1 if sign == "+" else -1)
        lines.append(f"{total} {sign} {term} = {after}\n")
        total = after
    return lines


Reasoning.players = {**PLAYERS, "coder": _make_coder, "reckoner": _make_reckoner, "rethinker": _make_rethinker}
