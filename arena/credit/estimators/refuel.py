"""REFUEL's return differences: what one answer led to beyond another one to the same words."""

import numpy as np

from arena.credit.batch import Floats, TurnBatch
from arena.credit.branches import pairs
from arena.credit.estimators.mars import Discount


def refuel(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0) -> Floats:
    """Return-to-go minus that of the other answer, R - R', where a branch and its match part; needs `play.branch`.

    R = R_h = Σ_{k ≥ h} γ^(k-h) r_k from the turn h at which they part, so of a pair the one gets R - R' and the other
    R' - R. Zero everywhere else, where both answers are the same ids, and where both led to the same return. It is
    what the loss `refuel` regresses on; with `policy_gradient` it is RLOO of two answers. Source: Gao et al. 2024.
    """
    values, advantages = batch.returns(rewards, gamma), np.zeros(len(rewards))
    for pair in pairs(batch.trajectories):
        first, second = batch.starts[[pair.first, pair.second]] + pair.place
        advantages[first], advantages[second] = values[first] - values[second], values[second] - values[first]
    return advantages
