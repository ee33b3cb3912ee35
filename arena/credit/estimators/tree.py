"""Comparison at the nodes of a tree: what the matches that took a turn came to, less what all at its node came to."""

from collections.abc import Sequence

import numpy as np

from arena.credit.batch import Floats, TrajectoryKey, TurnBatch
from arena.credit.branches import parting
from arena.credit.estimators.relative import PROBLEM
from games.contracts import MatchId


def tree(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """Each turn's advantage at the last node before it: the mean return of the matches that go on as it does, less that
    of all matches at the node, its siblings' among them.

    A node is where matches of `play.trees` part, and the deal itself, from which all of one group begin; between two
    nodes all turns have the same advantage. 0 where all at a node came to the same. Without branches it is GRPO's
    without a deviation. Means are over matches that count. Compares what follows a turn with what follows its siblings
    alone, where a group's mean compares it with matches that were in another state.
    """
    returns, advantages = batch.totals(rewards), np.zeros(len(batch.owner))
    groups, lines = batch.trajectory_groups(by), [MatchId.parse(t.match) for t in batch.trajectories]
    for group in np.unique(groups).tolist():
        members = np.flatnonzero(groups == group)
        counted = batch.counts[members]
        for own in members.tolist():
            parts = np.array([parting(lines[own], lines[other]) for other in members.tolist()])
            rows = range(int(batch.starts[own]), int(batch.starts[own + 1]))
            indices = [batch.turns[row].index for row in rows]
            advantages[rows.start : rows.stop] = _along(indices, parts, returns[members], counted)
    return advantages


def _along(turns: Sequence[int], parts: np.ndarray, returns: Floats, counted: np.ndarray) -> list[float]:
    """The advantages of a match's turns, from where every match of its group parts from it, and what each came to."""
    found, last = [], 0.0
    for number, turn in enumerate(turns):
        after = counted & (parts > turn)
        before = counted & (parts >= turn) if number else counted
        if after.any() and before.sum() > after.sum():
            last = float(returns[after].mean() - returns[before].mean())
        found.append(last)
    return found
