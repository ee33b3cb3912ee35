"""Game of a solver and a critic, who writes feedback between the tries and must not reveal the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import ACTION_LENGTH, choice, flag, to_one_line, whole_number
from games.contracts import View
from games.families.book import fold
from simulators.base import Script
from simulators.reasoning import replies
from simulators.reasoning.tasks import RIGHT, SOLVER, Reasoning

CRITIC = "critic"
HELPED, LEAK = "helped", "leak"
WITHHELD = "(The feedback is withheld: it gives the answer away.)"
TRIES = 5
"""Number of tries after which the report gives success, as in MINT (SR@1 to SR@5)."""
ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
VALUES = {word: str(n) for n, word in enumerate(ONES)} | {
    f"{ten} {ONES[one]}" if one else ten: str(10 * n + one) for n, ten in enumerate(TENS, 2) for one in range(10)
}
"""Digits of the numbers from 0 to 99, by their English words."""
WORDS = re.compile(
    rf"\b(?:(?:{'|'.join(TENS)})(?:[\s-]+(?:{'|'.join(ONES[1:10])}))?|{'|'.join(ONES)})\b", re.IGNORECASE
)
SIGN = re.compile(r"\u2212|\b(?:minus|negative)\s+(?=\d)", re.IGNORECASE)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?", re.ASCII)


class Critique(Reasoning):
    """Game of a solver and a critic about a task of reasoning-gym (MINT, Wang et al. 2023, "lazy user" feedback).

    The solver plays `reasoning` with protocol "retry" or "code". The critic reads each of its replies that does not end
    the match and writes feedback. Feedback that contains the answer, as digits or in words, is withheld, unless the
    question or a reply of the solver contains it.

    Options in addition to those of `reasoning`: reference, whether the critic sees the right answer; feedback, the
    maximum number of characters of one feedback.

    Reward parts in addition to `right`: `helped`, 1 to the critic if the solver is right after feedback; `leak`, -1 to
    the critic for withheld feedback.
    """

    name = "critique"
    seats = (SOLVER, CRITIC)
    metadata: ClassVar[dict[str, Any]] = {"name": "critique_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        **Reasoning.reward_parts,
        HELPED: "1 to the critic if the solver is right after its feedback",
        LEAK: "-1 to the critic for feedback that contains the answer",
    }

    def __init__(self, *, protocol: str = "retry", reference: bool = True, feedback: int = 400, **options: Any) -> None:
        choice("protocol", protocol, "retry", "code")  # others have one try
        self.reference = flag("reference", reference)
        self.feedback = whole_number("feedback", feedback, least=1, most=4000)
        super().__init__(protocol=protocol, **options)  # type: ignore[arg-type]

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task as `reasoning` does, and reset the counts of tries and feedback."""
        super().set_up(rng, options)
        self._try_count = self._leak_count = self._comment_count = 0
        self._acts: list[str] = []

    @property
    def turns_left(self) -> int:
        """Remaining replies of the solver, including the next one."""
        return self.max_turns - self._try_count

    def rules(self) -> str:
        """Return the rules of `reasoning` and those about the critic."""
        return (
            f"{super().rules()} Between the tries a critic may help with a hint of up to {self.feedback} characters. "
            "It must not say the answer."
        )

    def private(self, seat: str) -> dict[str, Any]:
        """Return the critic's facts: the solver's last reply (`attempt`) and the right answer (`reference`) if allowed.

        The solver has no private facts.
        """
        if seat != CRITIC:
            return {}
        return {"attempt": to_one_line(self._acts[-1], ACTION_LENGTH) if self._acts else ""} | (
            {"reference": self.task.answer} if self.reference else {}
        )

    def next_seat(self, seat: str) -> str:
        """Return the other seat."""
        return CRITIC if seat == SOLVER else SOLVER

    def play(self, seat: str, act: str) -> str:
        """Score the solver's answer, run its code, or send the critic's feedback to the solver. Returns ""."""
        if seat == SOLVER:
            super().play(seat, act)
            self._acts.append(act)
            self._try_count += 1
            if self.ended and self._comment_count and self.ended == RIGHT:
                self.pay(CRITIC, HELPED, 1.0)
            return ""
        comment = to_one_line(act, self.feedback)
        self._comment_count += bool(comment)
        if self._leaks_answer(comment):
            self._leak_count += 1
            self.pay(CRITIC, LEAK, -1.0)
            comment = WITHHELD
        if comment:
            self.tell(comment, SOLVER, sender=CRITIC)
        return ""

    @property
    def last_answer(self) -> str:
        """Answer in the solver's last reply; "" if it has none."""
        return replies.find_final_answer(self._acts[-1], self.answer) or "" if self._acts else ""

    def _leaks_answer(self, comment: str) -> bool:
        """Return True if a comment contains the answer, and neither the question nor the solver's replies do."""
        answer, context = self.task.answer, "\n".join([self.task.question, *self._acts])
        if NUMBER.fullmatch(answer.strip()):
            return bool(find_numbers(answer) & find_numbers(comment) - find_numbers(context))
        words = fold(answer)
        return bool(words) and _contains(fold(comment), words) and not _contains(fold(context), words)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the figures of `reasoning`, and `sr1` to `sr5`, `slope`, `comments` and `leaks`.

        `sr<k>` is True if the solver was right within k tries. `slope` is the least-squares slope of these five values
        over k; its mean over matches is the slope of the success rates. `comments` counts non-empty feedback, `leaks`
        withheld feedback.
        """
        tries_needed = self._try_count if self.ended == RIGHT else TRIES + 1
        within = [tries_needed <= k for k in range(1, TRIES + 1)]
        centred = np.arange(1, TRIES + 1) - (TRIES + 1) / 2
        return {
            **super().figures(),
            **{f"sr{k}": right for k, right in enumerate(within, 1)},
            "slope": float(centred @ np.array(within, float) / (centred @ centred)),
            "comments": self._comment_count,
            "leaks": self._leak_count,
        }


def find_numbers(text: str) -> set[float]:
    """Return the signed numbers in a text, including English words for 0 to 99."""
    text = SIGN.sub("-", WORDS.sub(lambda word: VALUES[re.sub(r"[\s-]+", " ", word[0].lower())], text))
    return {float(number) for number in NUMBER.findall(text)}


def _contains(text: str, words: str) -> bool:
    return re.search(rf"\b{re.escape(words)}\b", text) is not None


def _make_unary(game: Critique, seed: int) -> Script:
    """Return a critic that says only that the answer is wrong."""
    return lambda view: "That is not right."


def _make_compass(game: Critique, seed: int) -> Script:
    """Return a critic that says whether a number is too high or too low, and of other answers only that it is wrong."""

    def act(view: View) -> str:
        try:
            answer, right = float(game.last_answer), float(game.task.answer)
        except ValueError:
            return "That is not right."
        return "Too high." if answer > right else "Too low."

    return act


def _make_bisector(game: Critique, seed: int) -> Script:
    """Return a solver that finds a whole number by binary search with the critic's "too high" and "too low".

    It searches from -12 to 18, which includes every sum and difference of two one-digit numbers.
    """
    low, high = -12, 18

    def act(view: View) -> str:
        nonlocal low, high
        feedback = " ".join(message.text for message in view.messages if message.sender == CRITIC)
        middle = (low + high) // 2
        if "high" in feedback:
            high = middle - 1
        elif "low" in feedback:
            low = middle + 1
        return replies.write_answer(str((low + high) // 2), game.answer)

    return act


Critique.players = {**Reasoning.players, "unary": _make_unary, "compass": _make_compass, "bisector": _make_bisector}
