"""Chart of over-optimisation: a learned or judged reward and the true payoff over the distance from the reference.

Where a policy exploits the reward, the first line goes on rising and the second falls (Gao et al. 2023).
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

    x is the mean KL of the policies, or the iteration where no KL is measured.
    """
    kls = frame[[str(name) for name in frame.columns if KL.fullmatch(str(name)) and is_numeric(frame[name])]].mean(
        axis=1
    )
    is_known = bool(kls.round(9).nunique() > 1)
    for key in map(str, frame.columns):
        if not (found := VALUE.fullmatch(key)):
            continue
        stem = key.removesuffix("value")
        own = [name for name in (f"{stem}value", f"{stem}payoff") if name in frame.columns and is_numeric(frame[name])]
        rows = frame.assign(x=kls if is_known else frame["iteration"]).dropna(subset=["x", *own])
        if len(own) < 2 or rows["x"].nunique() < 2:
            continue
        labels = ("learned reward" if found[1] == "reward_model" else "judged reward", "payoff")
        lines = [Series(label, _make_points(rows, name)) for label, name in zip(labels, own, strict=True)]
        yield Curve(
            f"Over-optimisation of {found[2].replace('_', ' ')}", tuple(own), lines, [], ANY,
            "each line has a scale of its own, the payoff's at the right; vertical lines show where the alarm began",
            along="KL" if is_known else "", marks=tuple(_find_alarms(rows, f"{stem}alarm")), own_scales=True,
        )  # fmt: skip


def _make_points(rows: pd.DataFrame, name: str) -> list[tuple[float, Interval]]:
    values = rows.groupby("x")[name].mean()
    return [(float(str(x)), Interval(float(value), math.nan, math.nan)) for x, value in values.items()]


def _find_alarms(rows: pd.DataFrame, name: str) -> Iterator[Mark]:
    """Yield a mark for each iteration in which the alarm rose."""
    if name in rows.columns:
        raised = rows[name].fillna(0.0).astype("float64") > 0
        began = rows[raised & ~raised.shift(fill_value=False)]
        for x, iteration in zip(began["x"], began["iteration"], strict=True):
            yield Mark(f"alarm, iteration {int(iteration)}", float(x))
