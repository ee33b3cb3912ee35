"""Reach a block with a hand over a table, or push it into a ring, by acts of binned numbers (VLA-RL)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, whole_number
from simulators.vision.reach_lessons import KINDS, draw_lesson, write_instruction
from simulators.vision.reach_players import PLAYERS
from simulators.vision.reach_table import BINS, BLOCKS, UNIT, Layout, Table, as_fine, draw_layout
from simulators.vision.seeing import JUDGED, VisualWorld

SUCCESS, PROGRESS = "success", "progress"
_ACT = re.compile(r"\[?([0-9]{1,2})[ ,]+([0-9]{1,2})[ ,]+([0-9]{1,2})\]?", re.ASCII)
FLOORS = {"reach": 0.003, "push": 0.0}
"""Success rates of random acts: 4 of 1,500 seeds, and none of 300."""


class Reach(VisualWorld):
    """Single-player game of moving a hand over a table, which is seen from above in a picture of 48 x 48 pixels.

    Acts: three numbers from 0 to 31, dx dy grip, with or without brackets. 16 is no movement; each number above it
    moves the hand 3/8 of a pixel further to the right or down. From a grip of 16 on, the hand is down. With fewer
    `bins` the steps are longer: with 9 bins, 4 is no movement, and a step is 3/2 of a pixel. Task "reach": put the hand
    down on the named block; putting it down elsewhere fails. Task "push": bring the named block into the white ring; a
    lowered hand pushes blocks, a lifted one passes over them. Additional options: task, "reach", "push" or "mixed";
    bins, 5 to 32 (for pushes 32); max_turns, 4 to 64; camera, "table", or "hand" for pictures centred on the hand,
    which show at most half a table in each direction; progress, see below.

    Reward part "success": 1 when the task is done. With `progress`, part "progress" is the share of the initial
    distance that an act gains: a process reward, which is logged but not part of the payoff. To use it only as a target
    for a process reward model, and not for learning, set `credit.weights: {progress: 0}`.
    """

    name = "reach"
    metadata: ClassVar[dict[str, Any]] = {"name": "reach_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {SUCCESS: "the task is done"}
    unpaid_parts = (PROGRESS,)
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(
        self,
        *,
        task: Literal["reach", "push", "mixed"] = "reach",
        bins: int = BINS,
        max_turns: int = 32,
        camera: Literal["table", "hand"] = "table",
        progress: bool = False,
        **options: Any,
    ) -> None:
        self.task = choice("task", task, "reach", "push", "mixed")
        self.bins = whole_number("bins", bins, least=5, most=BINS)
        if self.bins < BINS and self.task != "reach":
            raise ValueError(f"bins {bins}: pushes need {BINS}: leave `bins` out, or set task to reach")
        self.max_turns = whole_number("max_turns", max_turns, least=4, most=64)
        self.follows = choice("camera", camera, "table", "hand") == "hand"
        self.progress = flag("progress", progress)
        if self.progress:
            self.reward_parts = {**self.reward_parts, PROGRESS: "share of the starting distance that was gained"}
        super().__init__(**options)

    @property
    def floor(self) -> float:
        """Success rate of random acts."""
        return FLOORS.get(self.task, sum(FLOORS.values()) / len(FLOORS))

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a random table of blocks, and show the instruction and the first picture."""
        pushes = bool(rng.integers(2)) if self.task == "mixed" else self.task == "push"
        layout = self.draw_layout(rng)
        self.table, self.wanted = Table(layout, pushes, follows=self.follows), int(options.get(JUDGED, layout.wanted))
        self.instruction = write_instruction(layout, pushes)
        self.start, self.right = self._measure_remaining(), False
        self.show(self.instruction, self.table.paint())

    def draw_layout(self, rng: np.random.Generator) -> Layout:
        """Draw the initial layout of a match, from the game's split."""
        return self.draw_entity(lambda: draw_layout(rng), repr)

    def rules(self) -> str:
        """Return the rules as text: the tasks and the format of acts."""
        still = self.bins // 2
        centre = "The pictures' centre is always the hand. " * self.follows
        return (
            f"Move the hand, a white cross, over the table. {centre}{self._usage.capitalize()}. {still} stays, "
            f"more is right or down, less left or up; from a grip of {still} the hand is down. Reach: put the hand "
            f"down on the block, once. Push: a hand that is down pushes blocks. {self.max_turns} turns in all."
        )

    @property
    def _usage(self) -> str:
        return f"write three numbers from 0 to {self.bins - 1}: dx dy grip"

    def public(self) -> dict[str, Any]:
        """Return the `instruction`, an act without movement (`stay`), and `turns_left`."""
        turns_left = self.max_turns - self.turns
        return {"instruction": self.instruction, "stay": f"[{self._no_movement} 0]", "turns_left": turns_left}

    @property
    def _no_movement(self) -> str:
        return f"{self.bins // 2} {self.bins // 2}"

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that would reveal the block's place, in pixels and in units."""
        x, y = self.table.blocks[self.wanted]
        texts = f"{x // UNIT} {y // UNIT}", f"{x} {y}", f"{y // UNIT} {x // UNIT}"
        # The public fact `stay` has these numbers in every match, so they reveal nothing.
        return {"place": tuple(text for text in texts if text != self._no_movement)}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of two deals with the same table but different blocks that count as right."""
        first, second = rng.permutation(BLOCKS)[:2].tolist()
        return {JUDGED: first}, {JUDGED: second}

    def play(self, seat: str, act: str) -> str:
        """Move the hand, pay, and show the table. Returns the act in normal form; raises IllegalAct for other texts."""
        match = _ACT.fullmatch(act.strip())
        bins = [int(number) for number in match.groups()] if match else []
        if not bins or max(bins) >= self.bins:
            raise IllegalAct(self._usage)
        before = self._measure_remaining()
        self.table.move(*(as_fine(number, self.bins) for number in bins))
        if self.progress:
            self.pay(seat, PROGRESS, (before - self._measure_remaining()) / self.start)
        self.right = self.table.is_done(self.wanted)
        if self.right:
            self.pay(seat, SUCCESS, 1.0)
            self.end("done", "The task is done.")
        elif self.table.is_down and not self.table.pushes:
            self.end("missed", "The hand is down, but not on the block.")
        elif self.turns == self.max_turns - 1:
            self.end("turns", "No turns are left.")
        else:
            self.show(self.table.paint())
        return " ".join(map(str, bins))

    def _measure_remaining(self) -> int:
        """Return the remaining distance for the named block, even if the option `judged` makes another one right."""
        return self.table.measure_remaining(self.table.layout.wanted)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `task`, and the remaining `distance` in pixels."""
        task, distance = "push" if self.table.pushes else "reach", self._measure_remaining() / UNIT
        return {"score": float(self.right), "success": self.right, "task": task, "distance": distance}
