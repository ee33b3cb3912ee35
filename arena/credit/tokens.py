"""Advantages of single tokens, and the way between turns and tokens."""

from typing import NamedTuple

import numpy as np

from arena.credit.batch import Floats, TurnBatch


class TokenAdvantages(NamedTuple):
    """What an estimator returns that tells the tokens of a turn apart."""

    values: Floats
    """[N], in the order of `TurnBatch.token_turns`."""


def spread(batch: TurnBatch, values: Floats) -> Floats:
    """[T] -> [N]: each turn's value on each of its own tokens."""
    return values[batch.token_turns]


def gathered(batch: TurnBatch, values: Floats) -> Floats:
    """[N] -> [T]: the mean over each turn's own tokens; 0 for a turn without any."""
    sums = np.bincount(batch.token_turns, values, len(batch.owner))
    return sums / np.maximum(batch.turn_tokens, 1)
