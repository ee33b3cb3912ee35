"""Parts of a claim's study: settings, arms, seeds, and a verdict by a rule stated before looking."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from world import Arm, World

from arena.statistics import ANY, COUNT, SHARE, Bounds, Interval, difference_ci, paired_ci

BOUNDS: dict[str, Bounds] = {
    **dict.fromkeys(("success", "zero_share", "solved", "train_first", "train_second", "right", "blunder"), SHARE),
    **dict.fromkeys(("length", "browsed", "nash_conv", "mean_nash_conv", "value_error", "gap"), COUNT),
    **dict.fromkeys(("skill", "skill_first", "skill_second", "score", "objective"), (-math.inf, 1.0)),
    "held_out_gain": (-1.0, 1.0),
}
"""Bounds of figures of studies; 1 is the best of those that may be negative."""


def bounds(figure: str) -> Bounds:
    """A mean over the run has the range of its figure."""
    return BOUNDS.get(figure.removesuffix("_over_the_run"), ANY)


class Verdict(NamedTuple):
    """Verdict of the numbers on a claim."""

    verdict: str
    """`holds`, `holds only where …`, or `does not hold here`."""
    because: str


class Ends:
    """The last value of every seed: by setting, arm and figure."""

    def __init__(self, values: Mapping[tuple[str, str, str], list[float]], figure: str, paired: bool = False) -> None:
        self.values, self.figure, self.paired = values, figure, paired

    def of(self, setting: str, arm: str, figure: str = "") -> list[float]:
        """One value per seed, of the claim's first figure or another one."""
        return self.values[setting, arm, figure or self.figure]

    def minus(self, setting: str, a: str, b: str, figure: str = "") -> Interval:
        """Return how far arm a ends above arm b, with its 95 % interval; seed by seed where paired."""
        one, other = self.of(setting, a, figure), self.of(setting, b, figure)
        return (paired_ci if self.paired else difference_ci)(other, one, bounds(figure or self.figure))

    def above(self, setting: str, a: str, b: str, figure: str = "") -> bool:
        """Return True if the interval of a - b lies above 0."""
        return self.minus(setting, a, b, figure).low > 0


@dataclass(frozen=True)
class Setting:
    """A world and how much of it is played."""

    world: Callable[[int], World]
    """From the seed."""
    arms: Mapping[str, Arm]
    steps: int
    """Turns of each arm and seed."""
    matches: int = 32
    group: int = 8


@dataclass(frozen=True)
class Claim:
    """A published claim and how it is put to the test."""

    claim: str
    """One sentence."""
    source: str
    published: str
    rule: str
    """Rule of the verdict, written down before looking."""
    settings: Mapping[str, Setting]
    figures: Sequence[str]
    """Drawn and summed up; the first is the one that matters."""
    verdict: Callable[[Ends], Verdict]
    compare: Sequence[tuple[str, str]]
    """Pairs of arms (a, b) whose difference a - b is reported with its interval, where a setting has both."""
    seeds: int = 10
    shown: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Setting -> its arms that the table of all claims tells of; empty is everything."""
    panels: Sequence[tuple[str, str]] = ()
    """Settings and figures that are drawn, the most telling first, at most eight; empty is the first figure of all."""
    drawn: Sequence[str] = ()
    """Arms that are drawn; empty is all of them."""
    paired: bool = False
    """Whether arms are compared seed by seed: where each seed draws a world of its own, the same for all arms."""
    also: Callable[[], dict[str, Any]] | None = None
    """Further numbers that are no learning curves."""
    notes: str = ""
    """Notes that a reader needs to judge it."""
