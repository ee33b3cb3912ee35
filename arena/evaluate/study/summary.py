"""Summary of a study's runs: first and last values, and differences paired by seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from agents.names import nearest
from arena.errors import ConfigError
from arena.statistics import Bounds, Interval, mean_ci, paired_ci, range_of

Curve = Sequence[float]
"""The figure, iteration by iteration."""
Values = Mapping[str, Mapping[int, float]]
"""One value of every run: by arm, then seed."""


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
    found = {**dict(_numbers(row)), **dict(_numbers(row.get("report", {})))}
    own = {name: value for name, value in _numbers(row) if "." not in name}  # before the report's of the same name
    return {name: value for name, value in {**found, **own}.items() if not name.startswith("report.")}


def _numbers(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in a table and in those inside of it, by `table.name`."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{before}{name}.")
        elif isinstance(value, int | float) and name != "iteration":
            yield before + name, float(value)


def means(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float | None]:
    """The mean of each of these figures over the rows that have it; None where none has."""
    found = {name: [row[name] for row in map(named_figures, rows) if name in row] for name in names}
    return {name: fmean(values) if values else None for name, values in found.items()}


def paired(values: Values, one: str, other: str, bounds: Bounds, level: float = 0.95) -> Interval:
    """`other` minus `one` over the seeds that both have."""
    both = sorted(values[one].keys() & values[other].keys())
    return paired_ci([values[one][s] for s in both], [values[other][s] for s in both], bounds, level)
