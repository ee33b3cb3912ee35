"""Debate game: several seats answer a question, see each other's answers and answer again; the majority decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import ACTION_LENGTH, IllegalAct, choice, to_one_line, whole_number
from games.contracts import View
from games.families.book import fold
from simulators.base import DRAWS, Script, SimulatorFault
from simulators.reasoning import gym, replies
from simulators.reasoning.task_game import PLAYERS, TaskGame
from simulators.reasoning.tasks import RIGHT
from simulators.reasoning.typed import strip_wording

VERDICT = "verdict"
SHOWN = 80
"""Maximum number of characters of an answer shown to other seats."""


class Debate(TaskGame):
    """Debate game: several debaters answer one question over several rounds, and the majority decides.

    Acts: an answer in every round. Other seats see a round's answers after all have answered. Options in addition to
    Simulator's: task: as in `reasoning`. debaters: number of debaters. rounds: number of answers by each. answer:
    format of the answer in an act: "plain", "boxed" or "tag". With the latter two, other seats read the whole act.

    The decision is the most frequent answer of the last round; a tie has none. Reward parts: `right`, 1 or 0, for every
    answer; `verdict`, 1 to all debaters if the decision is right. No seat is told the right answer. Protocol: Du et al.
    2023, "Improving Factuality and Reasoning in Language Models through Multiagent Debate".
    """

    name = "debate"
    metadata: ClassVar[dict[str, Any]] = {"name": "debate_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "1 for a right answer, in every round",
        VERDICT: "1 to all if the majority's last answer is right",
    }
    whole_acts = True

    def __init__(
        self,
        *,
        task: object = "chain_sum",
        debaters: int = 3,
        rounds: int = 2,
        answer: replies.AnswerFormat = "plain",
        **options: Any,
    ) -> None:
        count = whole_number("debaters", debaters, least=2, most=16)
        self.seats = tuple(f"debater_{n + 1}" for n in range(count))
        self.rounds = whole_number("rounds", rounds, least=1, most=32)
        self.answer = choice("answer", answer, *replies.ANSWERS)
        self.tasks = gym.read_task_option(task)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a family and one of its tasks whose question is in the split, and clear the answers."""
        for _ in range(DRAWS):
            family = list(self.tasks)[rng.integers(len(self.tasks))]
            self.task: gym.Task = gym.draw_task(family, self.tasks[family], rng)
            if self.split == "all" or gym.is_test(self.task.question) == (self.split == "test"):
                break
        else:
            raise SimulatorFault(f"none of {DRAWS} tasks is in the split {self.split}")
        self._replies: list[dict[str, str]] = [{}]
        self._answers: list[dict[str, str]] = [{}]
        self._results: list[dict[str, bool]] = [{}]

    def rules(self) -> str:
        """Return the rules, the same for all seats."""
        intro = f"{len(self.seats)} debaters answer the same question: write {replies.SHOWN_ANSWER[self.answer]}."
        if self.rounds == 1:
            return f"{intro} The majority decides."
        return (
            f"{intro} Then all see each other's answers and answer again: {self.rounds} rounds. Each answer is paid "
            "for being right, and all are paid if the majority of the last round is right."
        )

    def public(self) -> dict[str, Any]:
        """Return the facts that all debaters see: `question`, `terse`, `family`, `round`, `answers` and `replies`.

        `terse` is the question without its wording. `answers` are the previous round's answers by seat. `replies` are
        the whole acts by seat; {} if answers are plain.
        """
        answers, texts = (rounds[-2] if len(rounds) > 1 else {} for rounds in (self._answers, self._replies))
        return {
            "question": self.task.question,
            "terse": strip_wording(self.task.family, self.task.question),
            "family": self.task.family,
            "round": len(self._answers),
            "answers": {seat: to_one_line(answer, SHOWN) for seat, answer in answers.items()},
            "replies": {}
            if self.answer == "plain"
            else {seat: to_one_line(text, ACTION_LENGTH) for seat, text in texts.items()},
        }

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return {"answer": …}, or {} if it is under three characters, in question or rules, or already given."""
        answer = fold(self.task.answer)
        shown_replies = fold(" ".join(text for round_ in self._replies for text in round_.values()))
        shown_texts = fold(f"{self.task.question} {self.rules()}")
        is_secret = len(answer) > 2 and answer not in shown_texts and answer not in shown_replies
        return {"answer": (self.task.answer,)} if is_secret else {}

    def play(self, seat: str, act: str) -> str:
        """Score an answer. The last one ends the round. Returns "", because others see answers only after the round.

        Raises IllegalAct for an act without an answer.
        """
        answer = replies.find_final_answer(act, self.answer)
        if answer is None:
            raise IllegalAct(f"write {replies.SHOWN_ANSWER[self.answer]}")
        is_right = self.task.score(answer).value == 1.0
        self._replies[-1][seat] = act
        self._answers[-1][seat] = answer
        self._results[-1][seat] = is_right
        self.pay(seat, RIGHT, float(is_right))
        if len(self._answers[-1]) == len(self.seats):
            self._end_round()
        return ""

    def _end_round(self) -> None:
        if len(self._answers) < self.rounds:
            for rounds in (self._replies, self._answers, self._results):
                rounds.append({})
            return
        decision = self.find_decision()
        is_right = decision is not None and self.task.score(decision).value == 1.0
        for seat in self.seats:
            self.pay(seat, VERDICT, float(is_right))
        verdict = f"The majority is {'right' if is_right else 'wrong'}." if decision else "There is no majority."
        self.end("decided", verdict)

    def find_decision(self) -> str | None:
        """Return the last full round's most frequent answer in its shortest spelling; None for a tie or no round."""
        answers = next((answers for answers in reversed(self._answers) if len(answers) == len(self.seats)), {})
        most_common = Counter(map(_normalise, answers.values())).most_common(2)
        if not most_common or (len(most_common) == 2 and most_common[0][1] == most_common[1][1]):
            return None
        return min((answer for answer in answers.values() if _normalise(answer) == most_common[0][0]), key=len)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the match's figures, most of them shares of the debaters.

        `score` is the share that was right in the last round, `first` that in the first round. `mended` and `spoiled`
        are the shares that became right or wrong in between. `agreed` is the share with the most frequent final answer,
        and `success` is True if that answer is right. Also `family`, `question` and the right `answer`.
        """
        is_decided = self.ended == "decided"
        first, last = (self._results[0], self._results[-1]) if is_decided else ({}, {})
        answers = Counter(map(_normalise, self._answers[-1].values())) if is_decided else Counter[str]()
        decision, count = (self.find_decision() if is_decided else None), len(self.seats)
        return {
            "score": sum(last.values()) / count,
            "success": decision is not None and self.task.score(decision).value == 1.0,
            "first": sum(first.values()) / count,
            "mended": sum(last[seat] > first[seat] for seat in last) / count,
            "spoiled": sum(last[seat] < first[seat] for seat in last) / count,
            "agreed": max(answers.values(), default=0) / count,
            "family": self.task.family,
            "question": self.task.question,
            "answer": self.task.answer,
        }

    @property
    def floor(self) -> float:
        """Success rate if one debater plays at random and the others know the answer: 1 with at least two others."""
        return 1.0 if len(self.seats) > 2 else gym.estimate_chance(self.tasks)


def _normalise(answer: str) -> str:
    """Normalise an answer for comparison: ignore case, extra spaces and final full stops."""
    return " ".join(answer.split()).casefold().rstrip(". ")


def _make_follower(game: Debate, seed: int) -> Script:
    """Return a player that knows the answer half of the time, and from round 2 on gives the majority's answer.

    After a tie it repeats its own answer.
    """
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed

    reply = ""

    def answer(view: View) -> str:
        nonlocal reply
        if view.public["answers"]:
            reply = game.find_decision() or reply
        else:
            reply = game.task.answer if rng.random() < 0.5 else game.guess(rng)
        return replies.write_answer(reply, game.answer)

    return answer


Debate.players = {**PLAYERS, "follower": _make_follower}
