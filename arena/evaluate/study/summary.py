"""Summary of a study's runs: first and last values, differences paired by seed, and the verdict by the rule."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, NamedTuple

from agents.names import nearest
from arena.config.study import RuleSpec, StudySpec
from arena.errors import ConfigError
from arena.statistics import Bounds, Interval, mean_ci, paired_ci, range_of

Curve = Sequence[float]
"""The figure, iteration by iteration."""
Values = Mapping[str, Mapping[int, float]]
"""One value of every run: by arm, then seed."""
Word = Literal["holds", "not shown", "contradicted", "not judged"]


class Verdict(NamedTuple):
    """Verdict of the numbers on a claim, by the rule stated beforehand."""

    verdict: Word
    because: str


@dataclass(frozen=True)
class ArmSummary:
    """An arm over its seeds, with 95 % intervals."""

    arm: str
    seeds: int
    first: Interval
    last: Interval
    change: Interval
    behind: Interval | None
    """The first arm minus this one, over the seeds that both have; None for the first arm itself."""


class Ends:
    """The first value and the mean of the last ones of every run, within the figure's range."""

    def __init__(self, curves: Mapping[str, Mapping[int, Curve]], figure: str, last: int) -> None:
        self.first = {arm: {seed: c[0] for seed, c in seeds.items()} for arm, seeds in curves.items()}
        self.last = {arm: {seed: fmean(c[-last:]) for seed, c in seeds.items()} for arm, seeds in curves.items()}
        every = (value for seeds in curves.values() for curve in seeds.values() for value in curve)
        self.bounds = range_of(figure, every)

    def summary(self, arm: str, beside: str) -> ArmSummary:
        """One arm, beside the first one."""
        first, last = list(self.first[arm].values()), list(self.last[arm].values())
        behind = None if arm == beside or beside not in self.last else paired(self.last, arm, beside, self.bounds)
        means = mean_ci(first, self.bounds), mean_ci(last, self.bounds), paired_ci(first, last, self.bounds)
        return ArmSummary(arm, len(last), *means, behind)


def figure_in(row: Mapping[str, Any], figure: str) -> float:
    """A figure of an iteration's metrics or of their report; ConfigError, naming what there is, for an unknown one."""
    there = named_figures(row)
    if figure not in there:
        known = ", ".join(sorted(there))
        raise ConfigError(f"study.figure: no figure '{figure}'{nearest(figure, there)} (there are {known})")
    return there[figure]


def named_figures(row: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of an iteration, by name: those of the report by their own, of other tables by `table.name`."""
    tables = {name: value for name, value in row.items() if isinstance(value, Mapping)}
    found = {f"{table}.{name}": value for table, inner in tables.items() for name, value in inner.items()}
    found = {**found, **row.get("report", {}), **row}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not name.startswith("report.") and name != "iteration"
    }


def paired(values: Values, one: str, other: str, bounds: Bounds, level: float = 0.95) -> Interval:
    """`other` minus `one` over the seeds that both have."""
    both = sorted(values[one].keys() & values[other].keys())
    return paired_ci([values[one][s] for s in both], [values[other][s] for s in both], bounds, level)


def judged(spec: StudySpec, last: Values, bounds: Bounds, wanted: int) -> Verdict:
    """The verdict by the rule, once every arm that it compares has all of `wanted` seeds: a run that failed may be no
    accident.
    """
    rule = spec.verdict
    if not rule.better_than:
        return Verdict("not judged", "nothing is claimed: no arm is named that it has to be better than")
    for arm in (spec.arm, *rule.better_than):
        if (there := len(last.get(arm, ()))) < wanted:
            return Verdict("not judged", f"{there} of {wanted} runs of {arm} are there")
    if wanted < 2:
        return Verdict("not judged", "one seed has no interval: run two or more")
    gains = {arm: _gain(rule, paired(last, arm, spec.arm, bounds, rule.interval)) for arm in rule.better_than}
    return Verdict(_word(rule, gains.values()), "; ".join(_gain_text(spec, arm, gain) for arm, gain in gains.items()))


def _gain(rule: RuleSpec, difference: Interval) -> Interval:
    """The margin by which the first arm is better."""
    estimate, low, high = difference
    return Interval(-estimate, -high, -low) if rule.less_is_better else difference


def _word(rule: RuleSpec, gains: Collection[Interval]) -> Word:
    if all(gain.low > rule.by for gain in gains):
        return "holds"
    return "contradicted" if any(gain.high < rule.by for gain in gains) else "not shown"


def _gain_text(spec: StudySpec, arm: str, gain: Interval) -> str:
    estimate, low, high = (f"{value + 0.0:+.3g}" for value in gain)
    return f"{spec.arm} better than {arm} by {estimate} [{low}, {high}], asked for: more than {spec.verdict.by:g}"
