"""Summary of a study's runs: first and last values, and differences paired by seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from arena.errors import ConfigError
from arena.statistics import Bounds, Interval, mean_ci, paired_ci, range_of
from games.names import nearest

Curve = Sequence[float]
"""A figure's value at each iteration."""
Values = Mapping[str, Mapping[int, float]]
"""One value per run, by arm and seed."""


@dataclass(frozen=True, kw_only=True)
class ArmSummary:
    """Means over an arm's seeds, with 95 % intervals, of the first value, the last value, and their change."""

    arm: str
    seeds: int
    first: Interval
    last: Interval
    change: Interval
    difference: Interval | None
    """Last value of the study's own arm minus that of this arm, over their common seeds; None for the own arm."""


class Ends:
    """First value, and mean of the last values, of every run by arm and seed, with the figure's range as `bounds`."""

    def __init__(self, curves: Mapping[str, Mapping[int, Curve]], figure: str, last: int) -> None:
        """Compute the ends of each curve (by arm and seed) of this figure, averaging the last `last` values."""
        self.first = {arm: {seed: c[0] for seed, c in seeds.items()} for arm, seeds in curves.items()}
        self.last = {arm: {seed: fmean(c[-last:]) for seed, c in seeds.items()} for arm, seeds in curves.items()}
        every = (value for seeds in curves.values() for curve in seeds.values() for value in curve)
        self.bounds = range_of(figure, every)

    def summary(self, arm: str, own_arm: str) -> ArmSummary:
        """Summarise one arm over its seeds, and compare its last values with those of the study's own arm."""
        first, last = list(self.first[arm].values()), list(self.last[arm].values())
        difference = (
            None if arm == own_arm or own_arm not in self.last else compare_paired(self.last, arm, own_arm, self.bounds)
        )
        return ArmSummary(
            arm=arm,
            seeds=len(last),
            first=mean_ci(first, self.bounds),
            last=mean_ci(last, self.bounds),
            change=paired_ci(first, last, self.bounds),
            difference=difference,
        )


def find_figure(row: Mapping[str, Any], figure: str) -> float:
    """Return a number of an iteration's metrics by its name. Raises ConfigError, listing all names, if unknown."""
    known = list_figures(row)
    if figure not in known:
        raise ConfigError(
            f"study.figure: no figure '{figure}'{nearest(figure, known)} (there are {', '.join(sorted(known))})"
        )
    return known[figure]


def list_figures(row: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of an iteration's metrics by name: NAME in the report, GROUP.NAME in other nested groups."""
    found = {**dict(_list_numbers(row)), **dict(_list_numbers(row.get("report", {})))}
    # A metric wins over a report's number of the same name.
    own = {name: value for name, value in _list_numbers(row) if "." not in name}
    return {name: value for name, value in {**found, **own}.items() if not name.startswith("report.")}


def _list_numbers(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _list_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and name != "iteration":
            yield prefix + name, float(value)


def average_figures(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float | None]:
    """Return the mean of each named number over the rows of metrics that have it; None if no row has it."""
    found = {name: [row[name] for row in map(list_figures, rows) if name in row] for name in names}
    return {name: fmean(values) if values else None for name, values in found.items()}


def compare_paired(values: Values, one: str, other: str, bounds: Bounds, level: float = 0.95) -> Interval:
    """Return the mean of arm `other` minus arm `one`, paired over their common seeds, with its interval."""
    both = sorted(values[one].keys() & values[other].keys())
    return paired_ci([values[one][s] for s in both], [values[other][s] for s in both], bounds, level)
