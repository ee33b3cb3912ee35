"""Comparison of values with their group, shared by estimators."""

import numpy as np

from arena.credit.batch import Floats, Ints, TrajectoryKey, TurnBatch

PROBLEM: list[TrajectoryKey] = ["game", "seed", "role"]
"""Group by task: matches of one deal (`play.group`), from the view of the same role."""
SPREAD = 1e-6
"""A group's deviation below this counts as 0."""


def compare_in_groups(
    batch: TurnBatch, values: Floats, groups: Ints, *, std: bool = False, ddof: int = 1, min_count: int = 2
) -> Floats:
    """Subtract the group's mean from each value; with `std` also divide by the group's deviation + 1e-6.

    `values` and `groups` (group numbers) have one entry per turn or one per trajectory; statistics are over counted
    trajectories, the deviation with `ddof`. Returns 0 in groups with fewer than `min_count` counted entries, and with
    `std` if the deviation is below 1e-6.
    """
    gaps = np.where(batch.count_by(groups) >= min_count, values - batch.mean_by(values, groups), 0.0)
    if not std:
        return gaps
    spread = batch.std_by(values, groups, ddof=ddof)
    return np.where(spread >= SPREAD, gaps / (spread + SPREAD), 0.0)
