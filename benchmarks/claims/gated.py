"""G-RA: does a gate on step rewards stop a policy from collecting them in place of solving the task?

A task takes E right edits, one of two at each place, then a submission, within H turns. Browsing gets nothing done and
pays a step reward w. The state is the turn and the number of right edits so far.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Ints, Matches, World

from arena.config.experiment import LearnSpec
from arena.credit.settings import CreditSpec

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
            matches.reward("player", "submitted", edited[submit], submit)
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


LEARN = LearnSpec(lr=0.05, regularisers={})


def arm(*stages: Mapping[str, Mapping[str, object]], step: float = 1.0) -> Arm:
    """GRPO on the outcome and what these stages leave of the step rewards."""
    return Arm(
        CreditSpec.model_validate(
            dict(stages=list(stages), weights={"submitted": 0.0, "step": step}, estimator="grpo")
        ),
        LEARN,
    )


GATE = {"gate": {"on": {"submitted": 0.0}, "parts": ["step"]}}
ARMS = {
    "outcome only": arm(step=0.0),
    "direct": arm(),
    "gated": arm(GATE),
    "gated on solving": arm({"gate": {"on": {"solved": 0.0}, "parts": ["step"]}}),
    "gated, shuffled": arm(GATE, {"shuffle": {"part": "step"}}),
}
TASKS = {
    "H 8, 4 edits, step .25": (8, 4, 0.25),
    "H 8, 4 edits, step .1": (8, 4, 0.1),
    "H 9, 5 edits, step .2": (9, 5, 0.2),
    "H 12, 8 edits, step .2": (12, 8, 0.2),
}


def judge(ends: Ends) -> Verdict:
    """The verdict by the rule of the claim."""
    won = [place for place in TASKS if ends.above(place, "gated", "direct")]
    over = [place for place in TASKS if ends.above(place, "gated", "outcome only")]
    told = "; ".join(
        f"{place}: gated {ends.minus(place, 'gated', 'direct').estimate:+.2f} on direct "
        f"({ends.minus(place, 'gated on solving', 'direct').estimate:+.2f} on solving), "
        f"{ends.minus(place, 'gated', 'outcome only').estimate:+.2f} on outcome only"
        for place in TASKS
    )
    hijacked = [p for p in TASKS if ends.above(p, "outcome only", "direct")]
    richer = [p for p in hijacked if ends.above(p, "direct", "outcome only", "reward")]
    told += f". Above outcome only: {', '.join(over) or 'nowhere'}"
    told += f". Direct earns more and solves less than outcome only in {len(richer)} of {len(TASKS)}"
    if len(won) == len(TASKS):
        return Verdict("holds", told)
    return Verdict(f"holds only where: {'; '.join(won)}" if won else "does not hold here", told)


CLAIM = Claim(
    claim="Step rewards that count only behind a gate raise the outcome, where direct accumulation is hijacked",
    source="G-RA",
    published="SWE-bench Verified completion 47.6 to 93.8, modification 19.6 to 23.8; direct accumulation raises the "
    "total reward while the outcome falls",
    rule="A setting speaks for the claim when the 95 % interval of gated - direct in the chance of solving lies above "
    "0. Whether gated is above outcome only is told beside.",
    settings={
        place: Setting(partial(Editing, horizon=horizon, edits=edits, step=step), ARMS, 40_000, matches=32, group=8)
        for place, (horizon, edits, step) in TASKS.items()
    },
    figures=["solved", "reward", "browsed"],
    panels=[(place, figure) for figure in ("solved", "reward") for place in TASKS],
    verdict=judge,
    compare=[("gated", "direct"), ("gated", "outcome only"), ("gated", "gated, shuffled")],
    seeds=8,
    notes="`gated` opens on submitting any edit, as published for software engineering. The most that can be had by "
    "browsing all along / by browsing behind an open gate and not solving / by solving and browsing in what time is "
    "left: 2.0/1.5/1.75, .8/.6/1.3, 1.8/1.4/1.6, 2.4/2.0/1.6.",
)
