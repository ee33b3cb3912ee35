"""A sweep's settings, best first: each with the mean of its figure over seeds, and the picture of that."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.evaluate.study.grid import Point
from arena.evaluate.study.plan import Plan
from arena.evaluate.study.plot import plain_text, write_picture
from arena.evaluate.study.results import Results
from arena.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = 24
"""Settings in the picture, the best of all."""


class Ranked(NamedTuple):
    """One setting of a sweep and what came of it."""

    name: str
    arm: str
    """The arm that tried it; "" where arms are not told apart."""
    settings: Sequence[str]
    """As `--set` takes them, those that all settings of the sweep share left out."""
    values: Mapping[int, float]
    """The figure at the end of each run, by seed."""
    mean: Interval

    @property
    def label(self) -> str:
        """Return its arm and settings in one line."""
        return " ".join([f"{self.arm}:", *self.settings] if self.arm else self.settings)


def ranking(plan: Plan, results: Results, points: Mapping[str, Point]) -> list[Ranked]:
    """Return the settings that have runs, the best mean first, and what cannot be compared last; arm by arm."""
    tried = [point.settings for point in points.values()]
    shared = [setting for setting in tried[0] if all(setting in other for other in tried)]
    own = {name: [it for it in point.settings if it not in shared] for name, point in points.items()}
    if not any(own.values()):
        own = {name: point.settings for name, point in points.items()}  # a single setting
    last = results.ends.last
    found = [Ranked(of.arm, points[of.arm].arm, own[of.arm], last[of.arm], of.last) for of in results.arms]
    arms = [*dict.fromkeys(point.arm for point in points.values())]
    best = _best_first(results)
    return sorted(found, key=lambda of: (arms.index(of.arm), *best(of)))


def _best_first(results: Results) -> Callable[[Ranked], tuple[bool, float]]:
    sign = 1.0 if results.spec.verdict.less_is_better else -1.0
    return lambda of: (math.isnan(of.mean.estimate), sign * of.mean.estimate)


def as_json(ranked: Sequence[Ranked]) -> list[dict[str, Any]]:
    """Return the same as plain values."""
    return [
        {
            "name": of.name,
            **({"arm": of.arm} if of.arm else {}),
            "set": list(of.settings),
            "mean": of.mean._asdict(),
            "seeds": {str(seed): value for seed, value in of.values.items()},
        }
        for of in ranked
    ]


def plot(results: Results, ranked: Sequence[Ranked], path: Path) -> bool:
    """Write the picture as PNG; false where matplotlib is not installed."""
    return write_picture(lambda: drawn(results, ranked), path)


def drawn(results: Results, ranked: Sequence[Ranked]) -> Figure:
    """Return a row for each of the best settings: its seeds, their mean, and the interval of that."""
    from matplotlib.figure import Figure

    shown = ranked if len(ranked) <= DRAWN else sorted(ranked, key=_best_first(results))[:DRAWN]
    figure = Figure(figsize=(6.4, 1.6 + 0.28 * len(shown)), layout="constrained")
    axis = figure.add_subplot()
    for row, of in enumerate(shown):
        low, high = (abs(end - of.mean.estimate) if end == end else 0.0 for end in of.mean[1:])
        axis.plot(list(of.values.values()), [row] * len(of.values), "o", color="tab:blue", alpha=0.35, markersize=3)
        axis.errorbar(
            [of.mean.estimate], [row], xerr=[[low], [high]], fmt="o", color="tab:blue", capsize=2, markersize=4.5
        )
    axis.set_yticks(range(len(shown)), [plain_text(_short(of.label)) for of in shown], fontsize=8)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.set_xlabel(plain_text(f"{results.spec.figure}, mean of the last {results.spec.last} iterations"))
    axis.grid(alpha=0.3, axis="x")
    more = f", the best {len(shown)} of {len(ranked)}" if len(ranked) > len(shown) else ""
    heading = f"{results.name}{more}: {results.seeds} seeds each (small), their mean, 95 % intervals; for tuning"
    figure.suptitle(plain_text(heading), fontsize=8)
    return figure


def _short(label: str, most: int = 48) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"
