"""G-RA: does a gate on step rewards stop a policy from collecting them in place of solving the task?

A task takes E right edits, one of two at each place, then a submission, within H turns. Browsing gets nothing done and
pays a step reward w. The state is the turn and the number of right edits so far.
"""

from collections.abc import Mapping

import numpy as np
from world import Floats, Ints, Matches, World

EDITS, BROWSE, SUBMIT = 2, 2, 3


class Editing(World):
    """Edit, browse or submit, at most H turns."""

    name = "editing"

    def __init__(self, seed: int, horizon: int, edits: int, step: float) -> None:
        self.horizon, self.edits, self.step = horizon, edits, step
        self.right = np.random.default_rng([seed, 99]).integers(EDITS, size=edits)

    def state(self, turn: int, done: Ints) -> Ints:
        """A number for every turn and count of right edits."""
        return turn * (self.edits + 1) + done

    def tables(self) -> dict[str, Floats]:
        """All four actions alike."""
        return {"shared": np.zeros((self.horizon * (self.edits + 1), 4))}

    def play(self, matches: Matches) -> None:
        """Until submission or the last turn; `submitted` is no reward by itself but what a gate may look at."""
        done, edited = np.zeros(matches.count, np.int64), np.zeros(matches.count, bool)
        solved, browsed = np.zeros(matches.count), np.zeros(matches.count)
        rows = np.arange(matches.count)
        for turn in range(self.horizon):
            action = matches.act("player", self.state(turn, done[rows]), rows)
            browse, submit = rows[action == BROWSE], rows[action == SUBMIT]
            matches.reward("player", "step", self.step, browse)
            matches.reward("player", "submitted", edited[submit].astype(float), submit)
            solved[submit] = done[submit] == self.edits
            matches.reward("player", "solved", solved[submit], submit)
            browsed[browse] += 1
            edited[rows[action < EDITS]] = True
            open_ = done[rows] < self.edits
            done[rows[open_]] += action[open_] == self.right[done[rows[open_]]]
            rows = rows[action != SUBMIT]
        matches.figure("browsed", browsed)
        matches.figure("reward", solved + self.step * browsed)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """The chance of solving the task, exactly: probability mass over right edits, turn by turn."""
        table = tables["shared"].reshape(self.horizon, self.edits + 1, 4)
        mass, solved = np.zeros(self.edits + 1), 0.0
        mass[0] = 1.0
        for turn in range(self.horizon):
            solved += mass[-1] * table[turn, -1, SUBMIT]
            onward = table[turn, np.arange(self.edits), self.right]
            stay = 1.0 - table[turn, :, SUBMIT]
            stay[:-1] -= onward
            mass = mass * stay + np.concatenate([[0.0], mass[:-1] * onward])
        return {"solved": solved}
