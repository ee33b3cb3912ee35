"""Advantages of single tokens, and the way between turns and tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arena.credit.batch import Floats, Key, TurnBatch


class TokenAdvantages(NamedTuple):
    """Advantages per token, of an estimator that distinguishes the tokens of a turn."""

    values: Floats
    """[N], in the order of `TurnBatch.token_turns`."""


def spread(batch: TurnBatch, values: Floats) -> Floats:
    """[T] -> [N]: each turn's value on each of its own tokens."""
    return values[batch.token_turns]


def gathered(batch: TurnBatch, values: Floats) -> Floats:
    """[N] -> [T]: the mean over each turn's own tokens; 0 for a turn without any."""
    sums = np.bincount(batch.token_turns, values, len(batch.owner))
    return sums / np.maximum(batch.turn_tokens, 1)


def z_scores(batch: TurnBatch, values: Floats, by: Sequence[Key]) -> Floats:
    """[N] -> [N]: each token's value less the mean over the tokens of its turn's group, by their deviation + 1e-6.

    Over tokens of trajectories that count in the statistics; 0 in a group without any, or with a deviation below 1e-6.
    """
    groups = batch.groups(by)[batch.token_turns]
    size = int(groups.max(initial=-1)) + 1
    weights = batch.counts[batch.owner[batch.token_turns]].astype(np.float64)
    count = np.maximum(np.bincount(groups, weights, size), 1.0)
    gaps = values - (np.bincount(groups, weights * values, size) / count)[groups]
    spread = np.sqrt(np.bincount(groups, weights * gaps**2, size) / count)[groups]
    return np.where(spread >= 1e-6, gaps / (spread + 1e-6), 0.0)
