"""Controls: what learning looks like when credit says nothing."""

import numpy as np

from arena.credit.batch import Floats, Key, TurnBatch
from arena.credit.estimators.mars import AGENT, Discount, centred


def zero(batch: TurnBatch, rewards: Floats) -> Floats:
    """The control that learns nothing: every turn is worth 0."""
    return np.zeros(len(rewards))


def shuffled(
    batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, by: list[Key] = AGENT, std: bool = False
) -> Floats:
    """The control that keeps the numbers and breaks the credit: the advantages of `mars`, permuted in each group."""
    values, groups = batch.returns(rewards, gamma), batch.groups(by)
    for group in range(int(groups.max(initial=-1)) + 1):
        rows = np.flatnonzero(groups == group)
        values[rows] = batch.rng.permutation(values[rows])
    return centred(batch, values, by, std)
