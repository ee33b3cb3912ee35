"""Self-play game of a proposer, who writes checkable tasks, and solvers. The proposer is paid for difficulty."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, whole_number
from games.contracts import View
from simulators.base import PAYS, Script, Simulator, SimulatorFault, silent
from simulators.reasoning import gym, replies
from simulators.reasoning.tasks import RIGHT
from simulators.reasoning.typed import Family, TypedTask, is_same_number, make_families

Pay = Literal["hard", "frontier"]
PROPOSER = "proposer"
CHALLENGE = "challenge"
TRIES = 1000


class ProposerSolver(Simulator):
    """Self-play game: a proposer writes a task of the given family, and each solver answers it.

    Options in addition to Simulator's:
    families: a family of typed tasks, a list of families, or families with their limits.
    solvers: number of solvers of each task.
    pay: "hard" (1 - s, where s is the share of solvers that are right; SSP) or "frontier" (4 s (1 - s)).
    opening: length of the opening, 0 to 2: a proposal must begin with that many numbers of a drawn task, so that the
    proposer cannot repeat a few rewarding tasks.
    rounds: tasks per match. answer: format of a solver's answer: "plain", "boxed" or "tag".

    A proposal is valid if it keeps to the family's limits, does not contain its answer, is new in this match, and
    belongs to the split: with "train", no question of reasoning-gym's test split is ever used. An invalid proposal ends
    the match (with `illegal: retry` it may be repaired once) and pays 0; the default penalty is 0. Reward parts:
    `right`, 1 or 0 for a solver's answer; `challenge` for the proposer's task.
    """

    name = "proposer_solver"
    metadata: ClassVar[dict[str, Any]] = {"name": "proposer_solver_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "1 for a solver's right answer",
        CHALLENGE: "the proposer's reward for a task, by option `pay`",
    }
    whole_acts = True

    def __init__(
        self,
        *,
        families: object = "chain_sum",
        solvers: int = 4,
        pay: Pay = "frontier",
        opening: int = 0,
        rounds: int = 1,
        answer: replies.AnswerFormat = "plain",
        illegal: Literal["end", "retry"] = "end",
        penalty: float = 0.0,
        **options: Any,
    ) -> None:
        self.families = make_families(families)
        self.solvers = tuple(f"solver_{n + 1}" for n in range(whole_number("solvers", solvers, least=1, most=64)))
        self.seats = (PROPOSER, *self.solvers)
        self.pay_rule = choice("pay", pay, *PAYS)
        self.opening_length = whole_number("opening", opening, least=0, most=2)
        self.rounds = whole_number("rounds", rounds, least=1)
        self.answer = choice("answer", answer, *replies.ANSWERS)
        super().__init__(illegal=illegal, penalty=penalty, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a family and an example task, whose first numbers are the opening if the option `opening` is set.

        The reset options {"family": …, "example": …} set both instead.
        """
        names = list(self.families)
        name = str(options.get("family", names[rng.integers(len(names))]))
        self.family: Family = self.families[name]
        self.opening = ""
        self.example = self.family.check(options["example"]) if "example" in options else self._draw_example(rng)
        self.opening = self.example.split_after(self.opening_length)[0]
        self.proposal: TypedTask | None = None
        self._seen = set() if self.opening else {self.example.text}
        self._results: list[bool] = []
        self._shares: list[float] = []
        self._tasks: list[TypedTask] = []
        self._faults = 0

    def rules(self) -> str:
        """Return the rules, the same for all seats."""
        repeats = f" {self.rounds} tasks in turn." if self.rounds > 1 else ""
        opening = " A task begins as the proposer is told." if self.opening_length else ""
        payment = "the more of them fail" if self.pay_rule == "hard" else "most when half of them are right"
        return (
            f"The proposer writes a task, the {len(self.solvers)} solvers answer it, each alone.{repeats} "
            f"A solver is paid for the right answer; it writes {replies.SHOWN_ANSWER[self.answer]}. "
            f"The proposer writes the task and nothing else, and is paid {payment}; a task that is malformed, was seen "
            f"before or holds its own answer pays nothing.{opening}"
        )

    def public(self) -> dict[str, Any]:
        """Return `family`, `question` ("" before the proposal), `terse` (the bare task), and `round`, from 1."""
        task = self.proposal
        return {
            "family": self.family.name,
            "question": task.question if task else "",
            "terse": task.text if task else "",
            "round": min(len(self._shares) + 1, self.rounds),
        }

    def private(self, seat: str) -> dict[str, Any]:
        """Return the proposer's facts: the `form` and `limits` of tasks, and an `example` or `opening`; {} for solvers.

        The proposer may not repeat the example, and must begin with the opening.
        """
        if seat != PROPOSER:
            return {}
        limits = ", ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in self.family.settings.items())
        example = "" if self.opening else self.example.text
        return {"form": self.family.form, "limits": limits, "example": example, "opening": self.opening}

    def play(self, seat: str, act: str) -> str:
        """Check the proposer's task or score a solver's answer. Returns "", because other seats do not see the act.

        The last solver's answer ends the round. Raises IllegalAct for an invalid task.
        """
        if seat == PROPOSER:
            self.proposal = self._check(act)
            self._seen.add(self.proposal.text)
            self._tasks.append(self.proposal)
            self._results = []
        else:
            answer = replies.find_final_answer(act, self.answer)
            self._results.append(answer is not None and is_same_number(answer, self._task.answer))
            self.pay(seat, RIGHT, float(self._results[-1]))
            if len(self._results) == len(self.solvers):
                self._end_round()
        return ""

    @property
    def _task(self) -> TypedTask:
        if self.proposal is None:
            raise SimulatorFault("a solver is to move, but there is no task")
        return self.proposal

    def _check(self, act: str) -> TypedTask:
        """Parse and check a proposed task. Raises IllegalAct, with the reason, if that fails or the task is invalid."""
        text = act.strip().removesuffix("=").strip("` \n").removeprefix("[").removesuffix("]")
        try:
            task = self.family.check(text)
        except ValueError as error:
            raise IllegalAct(str(error)) from None
        except Exception as error:
            self._faults += 1  # never accept a task that crashes the checker
            raise IllegalAct("the checker cannot check it") from error
        if task.is_trivial:
            raise IllegalAct("its answer stands in it")
        if not self.has_opening(task):
            raise IllegalAct(f"it does not begin with {self.opening}")
        if task.text in self._seen:
            raise IllegalAct("it was seen before")
        if not self.is_in_split(task):
            raise IllegalAct("it is kept for another split")
        return task

    def has_opening(self, task: TypedTask) -> bool:
        """Return True if the task begins with the numbers of this match's opening, or there is no opening."""
        return not self.opening or task.split_after(self.opening_length)[0] == self.opening

    def is_in_split(self, task: TypedTask) -> bool:
        """Return True if the task's question belongs to the game's split."""
        return self.split == "all" or gym.is_test(task.question) == (self.split == "test")

    def may_ask(self, task: TypedTask) -> bool:
        """Return True if the task belongs to the split and does not contain its answer."""
        return not task.is_trivial and self.is_in_split(task)

    def _draw_example(self, rng: np.random.Generator) -> TypedTask:
        """Draw an example task. If its opening is a task by itself, that one must be valid too."""
        for _ in range(TRIES):
            task = self.draw_task(rng)
            try:
                opening = self.family.check(task.split_after(self.opening_length)[0])
            except ValueError:
                return task
            if self.may_ask(opening):
                return task
        raise SimulatorFault(f"{self.family.name} has no opening in the split {self.split} within its limits")

    def _end_round(self) -> None:
        """Pay the proposer for the round, then tell all seats the result and start the next round, or end the match."""
        share = sum(self._results) / len(self._results)
        self._shares.append(share)
        self.pay(PROPOSER, CHALLENGE, PAYS[self.pay_rule](share))
        summary = f"{sum(self._results)} of {len(self._results)} were right."
        if len(self._shares) == self.rounds:
            self.end("answered", summary)
            return
        self.proposal = None
        self.tell(summary, PROPOSER)
        for seat, is_right in zip(self.solvers, self._results, strict=True):
            self.tell("That was right." if is_right else "That was wrong.", seat)

    def draw_task(self, rng: np.random.Generator) -> TypedTask:
        """Draw a task of the match's family and split that begins with the opening and does not contain its answer."""
        for _ in range(TRIES):
            task = self.family.draw(rng)
            if self.opening:
                with contextlib.suppress(ValueError):  # joining may leave a parenthesis open
                    task = self.family.check(self.opening + task.split_after(self.opening_length)[1])
            if self.has_opening(task) and self.may_ask(task):
                return task
        raise SimulatorFault(f"{self.family.name} has no task in the split {self.split} within its limits")

    def draw_new_task(self, rng: np.random.Generator) -> TypedTask:
        """Draw a task as `draw_task` does, but new in this match. After `TRIES` failures, return the last draw."""
        for _ in range(TRIES):
            task = self.draw_task(rng)
            if task.text not in self._seen:
                break
        return task

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options that differ only in the example, which solvers must not see; None for the proposer."""
        if seat == PROPOSER:
            return None
        first, second, family = self.draw_task(rng), self.draw_task(rng), self.family.name
        while first.text == second.text:
            second = self.draw_task(rng)
        return {"family": family, "example": first.text}, {"family": family, "example": second.text}

    def figures(self) -> dict[str, float | bool | str]:
        """Return the match's figures.

        `valid` is the share of rounds with a valid proposal. `score` is the share of right answers over all rounds, and
        `s` over the rounds that were answered. `success` is True if `score` is 1. `terms` and `digits` (of the largest
        number) are means over tasks. Also `checker_faults`, `family` and the last `task`.
        """
        score = sum(self._shares) / self.rounds
        tasks = max(len(self._tasks), 1)
        return {
            "score": score,
            "success": score == 1.0,
            "s": sum(self._shares) / max(len(self._shares), 1),
            "valid": len(self._tasks) / self.rounds,
            "terms": sum(task.terms for task in self._tasks) / tasks,
            "digits": sum(task.digits for task in self._tasks) / tasks,
            "checker_faults": self._faults,
            "family": self.family.name,
            "task": self._tasks[-1].text if self._tasks else "",
        }

    @property
    def floor(self) -> float:
        """Success rate of the random proposer: 1, because its tasks are solvable and the other seats are oracles."""
        return 1.0


def _make_random(game: ProposerSolver, seed: int) -> Script:
    """Return a player that proposes a random valid task, and as a solver gives another task's answer."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed

    def answer(view: View) -> str:
        if view.seat == PROPOSER:
            return game.draw_new_task(rng).text
        return replies.write_answer(str(game.draw_task(rng).answer), game.answer)

    return answer


def _make_oracle(game: ProposerSolver, seed: int) -> Script:
    """Return a player that proposes a random valid task, and as a solver knows the answer."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed

    def answer(view: View) -> str:
        if view.seat == PROPOSER:
            return game.draw_new_task(rng).text
        return replies.write_answer(str(game.proposal.answer) if game.proposal else "", game.answer)

    return answer


ProposerSolver.players = {"noop": silent, "random": _make_random, "oracle": _make_oracle}
