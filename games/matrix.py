"""Repeated two-by-two games with talk: the prisoner's dilemma, the stag hunt, the battle of the sexes, chicken.

The first act of each is the cooperative one. Payoffs are those of OpenSpiel's matrix games.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from games.base import TALK, IllegalAct
from games.families.simultaneous import ROUND, SimultaneousGame

Payoffs = Mapping[tuple[int, int], tuple[float, float]]  # (row's act, column's act) -> (row's, column's payoff)


class MatrixGame(SimultaneousGame):
    """Base class of two-by-two games: in every round both seats choose one of two acts, hidden until both have chosen.

    Options in addition to TextGame's: rounds >= 1; continuation, the probability of another round. Reward part "round":
    each seat's payoff, paid when both have chosen. `theory` has constants of a single round.
    """

    seats: tuple[str, ...] = ("row", "column")
    reward_parts: Mapping[str, str] = {ROUND: "the round's payoff"}
    acts: ClassVar[tuple[str, str]]
    payoff: ClassVar[Payoffs]
    story: ClassVar[str]

    def __init__(self, *, rounds: int = 5, **options: Any) -> None:
        super().__init__(rounds=rounds, **options)

    def rules(self) -> str:
        """Return the rules as one paragraph: the story and the payoffs."""
        one, two = acts = self.acts
        points = ", ".join(f"{acts[i]}-{acts[j]} {a:g}-{b:g}" for (i, j), (a, b) in self.payoff.items())
        talk = TALK if self.talk else ""
        return (
            f"{self.story} Row and column choose {one} or {two} at once. Points for row and column: {points}. "
            f"{self.describe_length()}{talk}"
        )

    def legal(self, seat: str) -> list[str]:
        """Return the game's two acts."""
        return list(self.acts)

    def read(self, seat: str, act: str) -> str:
        """Parse one of the two acts, ignoring case and surrounding blanks. Raises IllegalAct for other texts."""
        if (word := act.strip().upper()) not in self.acts or not act.isascii():
            raise IllegalAct(f"write {self.acts[0]} or {self.acts[1]}")
        return word

    def settle(self, choices: list[str]) -> None:
        """Pay both seats by the payoff matrix and announce choices and payoffs."""
        payoffs = self.payoff[self._cell(choices)]
        for seat, value in zip(self.seats, payoffs, strict=True):
            self.pay(seat, ROUND, value)
        summary = ", ".join(f"{s} {c} +{v:g}" for s, c, v in zip(self.seats, choices, payoffs, strict=True))
        self.tell(f"Round {len(self.history)}: {summary}.")

    def _cell(self, choices: list[str]) -> tuple[int, int]:
        return self.acts.index(choices[0]), self.acts.index(choices[1])

    def figures(self) -> dict[str, float | bool | str]:
        """Return statistics of the match: its rounds, payoffs per round and shares of choices.

        `joint_value` is the mean sum of both payoffs per round, and `efficiency` its ratio to the best possible. `same`
        is the share of rounds with equal choices. The figure named after the first act is the share of choices of it.
        """
        rounds, best = max(1, len(self.history)), max(map(sum, self.payoff.values()))
        joint = sum(sum(self.payoff[self._cell(choices)]) for choices in self.history) / rounds
        firsts = sum(choices.count(self.acts[0]) for choices in self.history)
        return {
            "rounds": len(self.history), "joint_value": joint, "efficiency": joint / best,
            "same": sum(one == two for one, two in self.history) / rounds,
            self.acts[0].lower(): firsts / (2 * rounds),
        }  # fmt: skip


class PrisonersDilemma(MatrixGame):
    """Prisoner's dilemma. Acts: COOPERATE, DEFECT. Defecting dominates; alternating CD and DC pays as much as CC."""

    name = "prisoners_dilemma"
    metadata: ClassVar[dict[str, Any]] = {"name": "prisoners_dilemma_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"pure_equilibria": 1, "equilibrium_joint_value": 2, "best_joint_value": 10}
    acts = ("COOPERATE", "DEFECT")
    payoff: ClassVar[Payoffs] = {(0, 0): (5, 5), (0, 1): (0, 10), (1, 0): (10, 0), (1, 1): (1, 1)}
    story = "Prisoner's dilemma:"


class StagHunt(MatrixGame):
    """Stag hunt. Acts: STAG, HARE. Two pure equilibria: hunting the stag together pays most, hunting hares is safe."""

    name = "stag_hunt"
    metadata: ClassVar[dict[str, Any]] = {"name": "stag_hunt_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {
        "pure_equilibria": 2, "mixed_first_act": 1 / 2, "mixed_payoff": 1, "best_joint_value": 4,
    }  # fmt: skip
    acts = ("STAG", "HARE")
    payoff: ClassVar[Payoffs] = {(0, 0): (2, 2), (0, 1): (0, 1), (1, 0): (1, 0), (1, 1): (1, 1)}
    story = "Stag hunt: a stag takes two hunters, a hare one."


class BattleOfTheSexes(MatrixGame):
    """Battle of the sexes. Acts: OPERA, FOOTBALL. Two pure equilibria: row prefers OPERA, column FOOTBALL."""

    name = "battle_of_the_sexes"
    metadata: ClassVar[dict[str, Any]] = {"name": "battle_of_the_sexes_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {
        "pure_equilibria": 2, "mixed_first_act": 3 / 5, "mixed_payoff": 6 / 5, "best_joint_value": 5,
    }  # fmt: skip
    acts = ("OPERA", "FOOTBALL")
    payoff: ClassVar[Payoffs] = {(0, 0): (3, 2), (0, 1): (0, 0), (1, 0): (0, 0), (1, 1): (2, 3)}
    story = "An evening out: row prefers the opera, column football, both would rather be together."


class Chicken(MatrixGame):
    """Game of chicken. Acts: SWERVE, STRAIGHT. Two pure equilibria, in each of which exactly one seat swerves."""

    name = "chicken"
    metadata: ClassVar[dict[str, Any]] = {"name": "chicken_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {
        "pure_equilibria": 2, "mixed_first_act": 1 / 2, "mixed_payoff": 2, "best_joint_value": 6,
    }  # fmt: skip
    acts = ("SWERVE", "STRAIGHT")
    payoff: ClassVar[Payoffs] = {(0, 0): (3, 3), (0, 1): (1, 4), (1, 0): (4, 1), (1, 1): (0, 0)}
    story = "Chicken: two cars race at each other."
