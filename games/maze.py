"""A walk through a maze, seen from above or from inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, whole_number
from games.contracts import View
from games.families.grid import STEPS, carve, distances
from games.families.solitaire import Solitaire

MATCH = "match"


class Maze(Solitaire):
    """Acts: NORTH, EAST, SOUTH, WEST. Walking into a wall is legal and in vain, a turn is lost.

    Any two cells are joined by exactly one way, so who keeps a hand on the wall walks each corridor twice at
    most: the default max_turns, 2 * size^2, always suffices. LMRL-Gym's rewards: reward "steps", penalty 4.
    Options besides Solitaire's: size 2 to 20, cells a side; view "full" (the map) or "partial" (the exits here);
    expert, whether a step that brings the goal nearer pays the part "match" of 1, which `credit.weights: {match: 0}`
    makes a mark of agreement with an expert and no reward (UI-S1's estimator `step_episode` reads it).
    """

    name = "maze"
    seats: tuple[str, ...] = ("walker",)
    metadata: ClassVar[dict[str, Any]] = {"name": "maze_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"max_efficiency": 1.0}

    def __init__(
        self,
        *,
        size: int = 5,
        view: Literal["full", "partial"] = "full",
        expert: bool = False,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        self.size = whole_number("size", size, least=2, most=20)
        self.view, self.expert = choice("view", view, "full", "partial"), flag("expert", expert)
        if self.expert:
            self.reward_parts = {**self.reward_parts, MATCH: "1 for a step that brings the goal nearer"}
        super().__init__(max_turns=2 * size**2 if max_turns is None else max_turns, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Carves a maze; the walker and the goal are in two different cells."""
        cells = [(x, y) for x in range(self.size) for y in range(self.size)]
        self.doors = carve(cells, rng)
        start, goal = rng.choice(len(cells), size=2, replace=False)
        self.start, self.goal = cells[start], cells[goal]
        self.position = self.start
        self.away = distances(self.doors, self.goal)

    def rules(self) -> str:
        """One paragraph."""
        legend = " On the map # is wall, W you, G the goal, north is up." if self.view == "full" else ""
        acts = "one step a turn, NORTH, EAST, SOUTH or WEST"
        return f"Find the goal of the maze: {acts}; {self.max_turns} turns in all.{legend}"

    def public(self) -> dict[str, Any]:
        """The exits here and the turns left; the map where the view is full."""
        facts = {"exits": self._exits(), "turns_left": self.turns_left}
        return {"map": self.map(), **facts} if self.view == "full" else facts

    def situation(self, seat: str) -> str:
        """The walker's cell."""
        return str(self.position)

    def legal(self, seat: str) -> list[str]:
        """The four directions, walls or not."""
        return list(STEPS)

    def play(self, seat: str, act: str) -> str:
        """One step, if there is a way."""
        direction = act.strip().upper()
        if direction not in STEPS:
            raise IllegalAct("write NORTH, EAST, SOUTH or WEST")
        there = self.doors[self.position].get(direction)
        if self.expert and there and self.away[there] < self.away[self.position]:
            self.pay(seat, MATCH, 1.0)
        self.position = there or self.position
        if not there:
            self.tell("You walk into a wall.")
        self.score(seat, self.position == self.goal, "You have reached the goal.", "No turns are left.")
        return direction

    def payoffs(self) -> dict[str, float]:
        """As of every game; an expert's marks are none."""
        return {seat: payoff - self._totals[seat].get(MATCH, 0.0) for seat, payoff in super().payoffs().items()}

    def nearer(self) -> str:
        """The direction of the step that brings the goal nearer."""
        ways = self.doors[self.position].items()
        return next(way for way, there in ways if self.away[there] < self.away[self.position])

    def map(self) -> str:
        """The maze from above: rows of # and blanks, W the walker, G the goal; cell (x, y) is column 2x+1, row 2y+1."""
        rows = [["#"] * (2 * self.size + 1) for _ in range(2 * self.size + 1)]
        for (x, y), ways in self.doors.items():
            rows[2 * y + 1][2 * x + 1] = " "
            for direction in ways:
                east, south = STEPS[direction]
                rows[2 * y + 1 + south][2 * x + 1 + east] = " "
        for (x, y), mark in (self.goal, "G"), (self.position, "W"):
            rows[2 * y + 1][2 * x + 1] = mark
        return "\n".join("".join(row) for row in rows)

    def shortest(self) -> int:
        """The steps on the way from the start to the goal."""
        return distances(self.doors, self.start)[self.goal]

    def figures(self) -> dict[str, float | bool | str]:
        """Solved or not, the shortest way, and efficiency: shortest / turns taken, 0 where it is unsolved."""
        shortest, solved = self.shortest(), self.ended == "solved"
        return {**super().figures(), "shortest": shortest, "efficiency": shortest / self.turns if solved else 0.0}

    def _exits(self) -> list[str]:
        return [direction for direction in STEPS if direction in self.doors[self.position]]


def _oracle(game: Maze, seed: int) -> Callable[[View], str]:
    """Walk straight to the goal."""
    return lambda view: game.nearer()


Maze.players = {"oracle": _oracle}
