"""Chart of over-optimisation: a learned or judged reward and the true payoff over the distance from the reference.

If a policy exploits the reward, the reward keeps rising while the payoff falls (Gao et al. 2023).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pandas as pd

from analysis.frames import is_numeric
from analysis.view.charts import Curve, Mark, Series
from arena.statistics import ANY, Interval

VALUE = re.compile(r"(reward_model|judge)\.([^.]+)\.value")
KL = re.compile(r"learn\.[^.]+\.kl")


def over_optimisation(frame: pd.DataFrame) -> Iterator[Curve]:
    """Yield a chart for each reward model and judge in a table of metrics by iteration, with marks where alarms began.

    x is the policies' mean KL from the reference, or the iteration if no varying KL is logged.
    """
    mean_kl = frame[[str(name) for name in frame.columns if KL.fullmatch(str(name)) and is_numeric(frame[name])]].mean(
        axis=1
    )
    is_known = bool(mean_kl.round(9).nunique() > 1)
    for key in map(str, frame.columns):
        if not (match := VALUE.fullmatch(key)):
            continue
        stem = key.removesuffix("value")
        names = [
            name for name in (f"{stem}value", f"{stem}payoff") if name in frame.columns and is_numeric(frame[name])
        ]
        rows = frame.assign(x=mean_kl if is_known else frame["iteration"]).dropna(subset=["x", *names])
        if len(names) < 2 or rows["x"].nunique() < 2:
            continue
        labels = ("learned reward" if match[1] == "reward_model" else "judged reward", "payoff")
        lines = [Series(label, _make_points(rows, name)) for label, name in zip(labels, names, strict=True)]
        yield Curve(
            f"Over-optimisation of {match[2].replace('_', ' ')}", tuple(names), lines, [], ANY,
            "each line has its own scale, the payoff's on the right; vertical lines show where the alarm began",
            along="KL" if is_known else "", marks=tuple(_find_alarms(rows, f"{stem}alarm")), own_scales=True,
        )  # fmt: skip


def _make_points(rows: pd.DataFrame, name: str) -> list[tuple[float, Interval]]:
    values = rows.groupby("x")[name].mean()
    return [(float(str(x)), Interval(float(value), math.nan, math.nan)) for x, value in values.items()]


def _find_alarms(rows: pd.DataFrame, name: str) -> Iterator[Mark]:
    """Yield a mark for each iteration in which the alarm began."""
    if name in rows.columns:
        is_raised = rows[name].fillna(0.0).astype("float64") > 0
        first_rows = rows[is_raised & ~is_raised.shift(fill_value=False)]
        for x, iteration in zip(first_rows["x"], first_rows["iteration"], strict=True):
            yield Mark(f"alarm, iteration {int(iteration)}", float(x))
