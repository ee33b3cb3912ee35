"""Common part of estimators that compare: a value less what is normal in its group."""

import numpy as np

from arena.credit.batch import Floats, Ints, TrajectoryKey, TurnBatch

PROBLEM: list[TrajectoryKey] = ["game", "seed", "role"]
"""The same task: matches of one deal (`play.group`), seen by the same role."""
SPREAD = 1e-6
"""Below it a group's deviation counts as none."""


def relative(
    batch: TurnBatch, values: Floats, groups: Ints, *, std: bool = False, ddof: int = 1, least: int = 2
) -> Floats:
    """Values, [T] or [M], minus their group's mean, with `std` divided by its deviation + 1e-6; `groups` as long.

    Mean and deviation are over those that count in the statistics. 0 in a group where fewer than `least` do, for
    there is nothing to compare with, and with `std` where its deviation is less than 1e-6.
    """
    gaps = np.where(batch.count_by(groups) >= least, values - batch.mean_by(values, groups), 0.0)
    if not std:
        return gaps
    spread = batch.std_by(values, groups, ddof=ddof)
    return np.where(spread >= SPREAD, gaps / (spread + SPREAD), 0.0)
