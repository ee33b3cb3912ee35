"""The estimator without a baseline."""

from arena.credit.batch import Floats, TurnBatch
from arena.credit.estimators.mars import Discount


def reinforce(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0) -> Floats:
    """REINFORCE: compute each turn's return-to-go R_k = Σ_{k' ≥ k} γ^(k'-k) r_k' without a baseline.

    For rewards that are already centred, such as `information_gain` with `joint` or `separate`, and as the control
    without a baseline. The gradient is unbiased. Zero if the rewards from the turn on add up to 0. Source: Williams
    1992, with turns for steps.
    """
    return batch.returns(rewards, gamma)
