"""Comparison at the nodes of a tree of branched matches."""

from collections.abc import Sequence

import numpy as np

from arena.credit.batch import Floats, TrajectoryKey, TurnBatch
from arena.credit.branches import find_first_difference
from arena.credit.estimators.relative import PROBLEM
from games.contracts import MatchId


def tree(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """Subtract the mean return of all matches at the node before a turn from that of the matches after the turn.

    A node is a turn at which matches of the part `trees` diverge, or the deal from which a group starts. All turns
    between two nodes have the same advantage; it is 0 if all matches at the node have the same return. Means are over
    counted matches. Unlike a group's mean, the node's mean compares only matches from the same state. Without branches
    it is GRPO without the division by the deviation.
    """
    returns, advantages = batch.totals(rewards), np.zeros(len(batch.owner))
    groups, ids = batch.trajectory_groups(by), [MatchId.parse(t.match) for t in batch.trajectories]
    for group in np.unique(groups).tolist():
        members = np.flatnonzero(groups == group)
        counted = batch.counted_mask[members]
        for member in members.tolist():
            differences = np.array([find_first_difference(ids[member], ids[other]) for other in members.tolist()])
            rows = range(int(batch.starts[member]), int(batch.starts[member + 1]))
            indices = [batch.turns[row].index for row in rows]
            advantages[rows.start : rows.stop] = _compare_at_nodes(indices, differences, returns[members], counted)
    return advantages


def _compare_at_nodes(
    turns: Sequence[int], differences: np.ndarray, returns: Floats, counted: np.ndarray
) -> list[float]:
    """Return the advantages of one match's turns, whose indices are `turns`.

    The arrays have an entry per match of its group: the first turn not shared with it (`differences`), its return, and
    whether it counts.
    """
    advantages, latest = [], 0.0
    for number, turn in enumerate(turns):
        after = counted & (differences > turn)
        before = counted & (differences >= turn) if number else counted
        if after.any() and before.sum() > after.sum():
            latest = float(returns[after].mean() - returns[before].mean())
        advantages.append(latest)
    return advantages
