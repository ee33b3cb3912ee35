"""Ranking of a sweep's settings by the mean of their figure over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arena.evaluate.study.grid import Point
from arena.evaluate.study.results import Results
from arena.statistics import Interval


class RankedSetting(NamedTuple):
    """Setting of a sweep with its final values by seed and their mean."""

    name: str
    arm: str
    """Arm that tries the setting; "" in a sweep without arms."""
    settings: Sequence[str]
    """Settings as `--set` takes them, without those that all points share."""
    values: Mapping[int, float]
    """Final value of the figure, by seed."""
    mean: Interval


def rank(results: Results, points: Mapping[str, Point]) -> list[RankedSetting]:
    """Return the settings that have runs: arm by arm in the order of `points`, best mean first and NaN last."""
    settings_by_point = [point.settings for point in points.values()]
    shared = [setting for setting in settings_by_point[0] if all(setting in other for other in settings_by_point)]
    own = {name: [setting for setting in point.settings if setting not in shared] for name, point in points.items()}
    if not any(own.values()):
        own = {name: point.settings for name, point in points.items()}  # a single setting
    last = results.ends.last
    ranked = [RankedSetting(s.arm, points[s.arm].arm, own[s.arm], last[s.arm], s.last) for s in results.arms]
    arms = [*dict.fromkeys(point.arm for point in points.values())]
    sign = 1.0 if results.spec.verdict.less_is_better else -1.0
    return sorted(ranked, key=lambda it: (arms.index(it.arm), math.isnan(it.mean.estimate), sign * it.mean.estimate))


def to_json(ranked: Sequence[RankedSetting]) -> list[dict[str, Any]]:
    """Return the ranking as JSON values, one dict per setting.

    Keys: `name`, `arm` if any, `set` (its `--set` settings), `mean` with its interval, and `seeds` (value by seed).
    """
    return [
        {
            "name": it.name,
            **({"arm": it.arm} if it.arm else {}),
            "set": list(it.settings),
            "mean": it.mean._asdict(),
            "seeds": {str(seed): value for seed, value in it.values.items()},
        }
        for it in ranked
    ]
