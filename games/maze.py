"""A walk through a maze, with a map or only the local exits in view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, whole_number
from games.contracts import View
from games.families.grid import STEPS, Cell, Door, Starts, draw_map, draw_walk
from games.families.locks import State, count_steps_left, lock_doors, take_step
from games.families.solitaire import Solitaire

MATCH, MAX_LOCKS = "match", 3


class Maze(Solitaire):
    """Walk through a maze. Acts: NORTH, EAST, SOUTH, WEST. Walking into a wall is legal and only loses a turn.

    Exactly one path joins any two cells. A walker that follows the wall passes each corridor at most twice, so the
    default max_turns, 2 * size^2, suffices. For LMRL-Gym's rewards, set reward "steps" and penalty 4. More options:

    - size: 2 to 20 cells per side
    - view: "full" (the map), "place" (the walker's column and row, and the exits) or "partial" (only the exits)
    - layout: seed of a maze and goal that all matches share; needs locks 0
    - starts: start at "any" cell, "near" the goal (in the nearer half of the cells) or "far"; the latter need locks 0
    - locks: 0 to 3, fewer than size: the number of locked doors on the path to the goal, and of keys that lie before
      them. Following the wall takes one round to find a key and another to find its door, so the default max_turns is
      2 * size^2 * (1 + 2 * locks).
    - expert: whether each step towards the goal pays 1 in part "match". With `credit.weights: {match: 0}` this is no
      reward, but marks agreement with an expert for UI-S1's `step_episode`.
    """

    name = "maze"
    seats: tuple[str, ...] = ("walker",)
    metadata: ClassVar[dict[str, Any]] = {"name": "maze_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"max_efficiency": 1.0}
    unpaid_parts = (MATCH,)

    def __init__(
        self, *, size: int = 5, view: Literal["full", "place", "partial"] = "full", layout: int | None = None,
        starts: Starts = "any", locks: int = 0, expert: bool = False, max_turns: int | None = None, **options: Any
    ) -> None:  # fmt: skip
        self.size = whole_number("size", size, least=2, most=20)
        self.locks = whole_number("locks", locks, least=0, most=min(MAX_LOCKS, self.size - 1))
        self.view, self.expert = choice("view", view, "full", "place", "partial"), flag("expert", expert)
        self.starts = choice("starts", starts, "any", "near", "far")
        self.layout = layout if layout is None else whole_number("layout", layout, least=0)
        if self.locks and (self.layout is not None or self.starts != "any"):
            raise ValueError("locks must be 0 with `layout` or `starts`")
        if self.expert:
            self.reward_parts = {**self.reward_parts, MATCH: "1 for a step that brings the goal nearer"}
        super().__init__(max_turns=2 * size**2 * (1 + 2 * self.locks) if max_turns is None else max_turns, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a maze, a start, a goal more than `locks` steps away, and the places of locks and keys."""
        self.doors, self.start, self.goal = draw_walk(self.size, self.locks, rng, self.layout, self.starts)
        locked, keys = lock_doors(self.doors, self.start, self.goal, self.locks, rng)
        self.walk_state = self.initial_state = State(self.start, keys, 0, locked)

    @property
    def position(self) -> Cell:
        """Walker's cell: column and row from the north-west corner, from 0."""
        return self.walk_state.position

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        signs = " D a locked door, K a key," if self.locks else ""
        legend = f" On the map # is wall, W you,{signs} G the goal, north is up." if self.view == "full" else ""
        legend += " A locked door takes a key; who walks over a key has it." if self.locks else ""
        acts = "one step a turn, NORTH, EAST, SOUTH or WEST"
        return f"Find the goal of the maze: {acts}; {self.max_turns} turns in all.{legend}"

    def public(self) -> dict[str, Any]:
        """Return `exits` and `turns_left`; with locks also `locked` exits and held `keys`; by view `map` or `place`."""
        locked = [way for way in self._exits() if self._door(way) in self.walk_state.locked]
        exits, (x, y) = [way for way in self._exits() if way not in locked], self.position
        facts = {"locked": locked, "keys": self.walk_state.key_count} if self.locks else {}
        seen = {"full": {"map": self.map()}, "place": {"place": f"{x} {y}"}, "partial": {}}[self.view]
        return {**seen, "exits": exits, **facts, "turns_left": self.turns_left}

    def situation(self, seat: str) -> str:
        """Return the walker's cell as text; with locks, also the keys held and the cells where keys lie."""
        return (
            f"{self.position} {self.walk_state.key_count} {sorted(self.walk_state.keys)}"
            if self.locks
            else str(self.position)
        )

    def legal(self, seat: str) -> list[str]:
        """Return the four directions, whether or not a wall or locked door is there."""
        return list(STEPS)

    def play(self, seat: str, act: str) -> str:
        """Step unless a wall or locked door is there, announce events, and pay. Raises IllegalAct for other texts."""
        direction = act.strip().upper()
        if direction not in STEPS:
            raise IllegalAct("write NORTH, EAST, SOUTH or WEST")
        before, after = self.walk_state, take_step(self.doors, self.walk_state, direction)
        if self.expert and self._count_steps(after) < self._count_steps(before):
            self.pay(seat, MATCH, 1.0)
        if after == before:
            self.tell("The door is locked." if direction in self.doors[self.position] else "You walk into a wall.")
        if len(after.locked) < len(before.locked):
            self.tell("You unlock the door.")
        if len(after.keys) < len(before.keys):
            self.tell("You find a key.")
        self.walk_state = after
        self.score(seat, self.position == self.goal, "You have reached the goal.", "No turns are left.")
        return direction

    def find_step(self) -> str:
        """Return the direction whose step leaves the fewest steps to the goal, keys included."""
        return min(self._exits(), key=lambda way: self._count_steps(take_step(self.doors, self.walk_state, way)))

    def map(self) -> str:
        """Return the maze from above: # walls, blanks for open space, W walker, G goal, K keys, D locked doors."""
        marks = {**dict.fromkeys(self.walk_state.keys, "K"), self.goal: "G", self.position: "W"}
        return draw_map(self.doors, marks, self.walk_state.locked)

    def shortest(self) -> int:
        """Return the fewest steps from start to goal, including detours for keys."""
        return self._count_steps(self.initial_state)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `solved`, `shortest` (the fewest steps) and `efficiency`: shortest / turns, 0 if unsolved."""
        shortest, solved = self.shortest(), self.ended == "solved"
        return {**super().figures(), "shortest": shortest, "efficiency": shortest / self.turns if solved else 0.0}

    def _count_steps(self, state: State) -> int:
        return count_steps_left(self.doors, state, self.goal)

    def _exits(self) -> list[str]:
        return [direction for direction in STEPS if direction in self.doors[self.position]]

    def _door(self, direction: str) -> Door:
        return frozenset((self.position, self.doors[self.position][direction]))


def _oracle(game: Maze, seed: int) -> Callable[[View], str]:
    """Return a scripted walker that always steps along a shortest way to the goal."""
    return lambda view: game.find_step()


Maze.players = {"oracle": _oracle}
