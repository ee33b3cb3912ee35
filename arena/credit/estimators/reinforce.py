"""No baseline: what a turn led to is what it is worth."""

from arena.credit.batch import Floats, TurnBatch
from arena.credit.estimators.mars import Discount


def reinforce(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0) -> Floats:
    """REINFORCE: return-to-go of each turn, R_k = Σ_{k' ≥ k} γ^(k'-k) r_k', as it is; nothing is subtracted.

    For rewards that are centred already, such as `information_gain` with `joint` or `separate`, and as the control
    without a baseline. Its expectation is the gradient. Zero where nothing was earned from the
    turn on. Source: Williams 1992, with turns for steps.
    """
    return batch.returns(rewards, gamma)
