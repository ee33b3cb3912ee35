"""REFUEL's return differences between two replies to the same messages."""

import numpy as np

from arena.credit.batch import Floats, TurnBatch
from arena.credit.branches import find_pairs
from arena.credit.estimators.mars import Discount


def refuel(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0) -> Floats:
    """REFUEL: subtract the other reply's return-to-go, R - R', at the turn where a branch leaves its match.

    Needs the part `branches`. R = R_h = Σ_{k ≥ h} γ^(k-h) r_k from the first differing turn h, so one reply of a pair
    gets R - R' and the other R' - R. Zero everywhere else, for replies with the same ids, and for equal returns. The
    loss `refuel` regresses on it; with `policy_gradient` it is RLOO of two replies. Source: Gao et al. 2024.
    """
    values, advantages = batch.returns(rewards, gamma), np.zeros(len(rewards))
    for pair in find_pairs(batch.trajectories):
        first, second = batch.starts[[pair.first, pair.second]] + pair.place
        advantages[first], advantages[second] = values[first] - values[second], values[second] - values[first]
    return advantages
