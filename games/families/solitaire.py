"""Base class of single-seat games with a goal, with their rewards and end of the match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from games.base import TextGame, choice, number, whole_number

GOAL = "goal"
COST = "cost"

Split = Literal["all", "train", "test"]
T = TypeVar("T")


def select_split(split: Split, items: tuple[T, ...]) -> tuple[T, ...]:
    """Return the items of a split: all, every fourth ("test") or the others ("train")."""
    if split == "all":
        return items
    return tuple(item for place, item in enumerate(items) if (place % 4 == 0) == (split == "test"))


class Solitaire(TextGame):
    """Base class of single-seat games that end at a goal, or unsolved after `max_turns` legal acts.

    Options besides TextGame's: max_turns >= 1; reward "goal" (part "goal": 1 for reaching it; part "cost": -cost for
    every act) or "steps" (part "cost": -1 for every act but the solving one, as in LMRL-Gym, Abdulhai et al. 2023);
    cost >= 0. `stakes` is the cost of all turns together, so that giving up never pays.
    """

    reward_parts: Mapping[str, str] = {GOAL: "1 for reaching the goal", COST: "cost of an act, negative"}

    def __init__(
        self, *, max_turns: int, reward: Literal["goal", "steps"] = "goal", cost: float = 0.01, **options: Any
    ) -> None:
        self.max_turns = whole_number("max_turns", max_turns, least=1)
        self.reward = choice("reward", reward, "goal", "steps")
        self.cost = number("cost", cost) if reward == "goal" else 1.0
        self.stakes = self.max_turns * self.cost
        super().__init__(**options)

    @property
    def turns_left(self) -> int:
        """Number of legal acts left in the match."""
        return self.max_turns - self.turns

    def score(self, seat: str, solved: bool, success: str, failure: str) -> None:
        """Pay the seat for the current act, and end the match at the goal or after the last turn.

        `success` and `failure` are the referee's announcements of the end.
        """
        if self.cost and not (solved and self.reward == "steps"):
            self.pay(seat, COST, -self.cost)
        if solved:
            if self.reward == "goal":
                self.pay(seat, GOAL, 1.0)
            self.end("solved", success)
        elif self.turns_left == 1:
            self.end("turns", failure)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `solved`: whether the goal was reached."""
        return {"solved": self.ended == "solved"}
