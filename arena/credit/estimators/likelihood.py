"""Weights for the loss `likelihood`, without a baseline."""

import numpy as np

from arena.credit.batch import Floats, TurnBatch
from arena.credit.estimators.mars import Discount


def epo_weighted(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 0.99) -> Floats:
    """EPO: divide each turn's discounted return by its trajectory's largest, as weights for `loss: likelihood`.

    A_k = G_k / max_j |G_j|, G_k = r_k + γ·G_{k+1}, in [-1, 1]; with `aggregate: stream_turn_mean`. There is no baseline
    and no group: with positive rewards every turn is imitated, and a negative weight lowers a turn's probability, so
    the expected update is not the gradient of the return (docs/gradients.md). Zero if G_k is 0, as for all turns of a
    trajectory without reward. Source: EPO (ACL 2025), whose rewards are 1 for turns that a judge calls pivotal and the
    goal's score at the end, and which averages over a dialogue's turns, then over dialogues, as that aggregate does.
    """
    values = batch.returns(rewards, gamma)
    largest = np.zeros(len(batch.lengths))
    np.maximum.at(largest, batch.owner, np.abs(values))
    return values / np.where(largest > 0, largest, 1.0)[batch.owner]
