"""Estimators that compare matches of the same deal: GRPO and variants.

They need `play.group` above 1: with one trajectory per deal and role every advantage is 0. A trajectory's return R is
the undiscounted sum of its rewards, and all its turns get the same advantage. `at_grpo` compares the k-th turns of a
group instead, and `reinforce_pp` without `baseline` all turns of a policy, without groups.
"""

import numpy as np

from arena.credit.batch import Floats, TrajectoryKey, TurnBatch
from arena.credit.estimators.mars import Discount
from arena.credit.estimators.relative import PROBLEM, compare_in_groups


def grpo(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """GRPO: standardise each trajectory's return in its group, (R - mean) / (std + 1e-6), on all turns.

    Mean and sample deviation (n - 1) over the trajectories of a group. The deviation biases the gradient slightly
    (docs/gradients.md). Zero for groups of one and if all returns are equal. Source: GRPO (Shao et al. 2024); verl and
    TRL divide by the same deviation (TRL adds 1e-4), but verl gives a group of one its bare return.
    """
    advantages = compare_in_groups(batch, batch.totals(rewards), batch.trajectory_groups(by), std=True)
    return advantages[batch.owner]


def dr_grpo(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """Dr. GRPO: subtract the group's mean from each trajectory's return, R - mean, on all turns.

    Use with `aggregate: constant_length`. Dividing by the deviation, as `grpo` does, gives more weight to tasks that
    are almost always or almost never solved. In a group of n the expected update is (n - 1)/n of the gradient,
    whichever seat ends the match. Zero as for `grpo`. Source: Liu et al. 2025.
    """
    return compare_in_groups(batch, batch.totals(rewards), batch.trajectory_groups(by))[batch.owner]


def rloo(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """RLOO: subtract the mean return of the other trajectories, n/(n - 1) · (R - mean), on all turns.

    A trajectory outside the statistics is compared with the mean of all inside. The gradient is unbiased, whichever
    seat ends the match. Zero as for `grpo`. Source: RLOO (Ahmadian et al. 2024).
    """
    groups = batch.trajectory_groups(by)
    count = batch.count_by(groups)
    others = np.maximum(count - batch.counted_mask, 1.0)
    return (compare_in_groups(batch, batch.totals(rewards), groups) * count / others)[batch.owner]


def reinforce_pp(
    batch: TurnBatch,
    rewards: Floats,
    *,
    gamma: Discount = 1.0,
    baseline: bool = False,
    by: list[TrajectoryKey] = PROBLEM,
) -> Floats:
    """REINFORCE++: whiten the turns' returns-to-go over all turns of the policy; needs no groups.

    A = (R_k - mean) / (std + 1e-6), R_k = Σ_{k' ≥ k} γ^(k'-k) r_k', mean and population deviation over all turns of the
    same policy. With `baseline` R_k is replaced by the trajectory's return minus its group's mean (`by`; `gamma` is 1
    then), which is 0 for groups of one before whitening. Zero if a turn's value is the mean, and everywhere if all are
    equal. Slightly biased if policies influence the number of turns; the bias shrinks with the batch
    (docs/gradients.md). Source: Hu et al. 2025. OpenRLHF (`reinforce`, `reinforce_baseline`) whitens over tokens, so
    long replies weigh more, and takes the KL into the reward; `dr_grpo` with the transform `whiten` is its baseline
    variant as released.
    """
    values = dr_grpo(batch, rewards, by=by) if baseline else batch.returns(rewards, gamma)
    return compare_in_groups(batch, values, batch.groups(["policy"]), std=True, ddof=0)


def at_grpo(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """AT-GRPO: standardise returns-to-go among the k-th turns of a group, (R_k - mean_k) / (std_k + 1e-6).

    Compares the returns-to-go R_k = Σ_{k' ≥ k} γ^(k'-k) r_k' of turns of the same deal, role and number; `gamma: 0`
    compares the turns' own rewards. Sample deviation (n - 1). Zero if fewer than two trajectories reached turn k, and
    if their R_k are equal. If policies influence the number of turns, later turns are divided by the deviation of the
    trajectories that reached them: biased for any batch size (docs/gradients.md).

    Source: AT-GRPO (PettingLLMs, ICLR 2026). There K replies are sampled from one history and all continue from the
    best, so that turn k's candidates share a prompt and only their own rewards can be compared. Here matches continue
    independently: from the second turn on histories differ, and later rewards count.
    """
    values, groups = batch.returns(rewards, gamma), batch.groups([*by, "turn"])
    return compare_in_groups(batch, values, groups, std=True)
