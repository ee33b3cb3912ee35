"""GiGPO against GRPO where bad acts lead back to the same state, and in twins of the task where they do not.

A house of six rooms in a row, each with one way on and three that lead back into the same room; whoever leaves within
the horizon wins. What is played and learnt is the same in the twins `clocked` and `stamped`, only what the seat reads
differs, and with it which turns share an anchor: the room; the room and the time, which no match sees twice; a text
that never comes again, where GiGPO has to be GRPO. In the twin `one way` every act leads on, and at least three of six
must have been right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Learner, Matches, World

from arena.experiment import CreditSpec, LearnSpec

ROOMS, WAYS, HOUSES, ENOUGH = 6, 4, 8, 3
GAMMA = 0.95
RIGHT = np.random.default_rng(0).integers(WAYS, size=HOUSES * ROOMS)
"""The way on, by state: rooms of one house after another."""


@dataclass
class House(World):
    """Rooms in a row. One reward, for leaving in time; `early` says how early and weighs 0 unless an arm weighs it."""

    horizon: int
    sees: Literal["room", "clock", "stamp"] = "room"
    loops: bool = True
    name = "house"
    deals = HOUSES

    def __post_init__(self) -> None:
        self.minute = self.stamp = 0

    def tables(self) -> dict[str, Floats]:
        return {"shared": np.zeros((HOUSES * ROOMS, WAYS))}

    def text(self, state: int) -> str:
        self.stamp += 1
        more = {"room": "", "clock": f", minute {self.minute}", "stamp": f", note {self.stamp}"}[self.sees]
        return f"house {state // ROOMS}, room {state % ROOMS}{more}"

    def play(self, matches: Matches) -> None:
        room, taken, right = (np.zeros(matches.count, int) for _ in range(3))
        for self.minute in range(self.horizon):
            inside = np.flatnonzero(room < ROOMS)
            if not len(inside):
                break
            states = matches.deals[inside] * ROOMS + room[inside]
            found = matches.act("player", states, inside) == RIGHT[states]
            right[inside] += found
            taken[inside] += 1
            room[inside] += found if self.loops else 1
        won = (room == ROOMS) & (right >= (ROOMS if self.loops else ENOUGH))
        matches.reward("player", "won", won)
        matches.reward("player", "early", won * (GAMMA ** (taken - 1) - 1))

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Exact: the chance to win, and how many turns are played."""
        on = tables["shared"][np.arange(HOUSES * ROOMS), RIGHT].reshape(HOUSES, ROOMS)
        at = np.zeros((HOUSES, ROOMS + 1))  # the room, or in the twin `one way` the number of right acts
        at[:, 0] = 1.0
        turns = 0.0
        for k in range(self.horizon if self.loops else ROOMS):
            turns += float(at[:, :ROOMS].sum() / HOUSES) if self.loops else 1.0
            step = at[:, :ROOMS] * (on if self.loops else on[:, [k]])
            at[:, :ROOMS] -= step
            at[:, 1:] += step
        won = at[:, ROOMS] if self.loops else at[:, ENOUGH:].sum(1)
        return {"success": float(won.mean()), "turns": turns}
