"""Estimators that compare matches of the same deal: GRPO and its kin. They need `play.group` above 1.

A trajectory's return R is the undiscounted sum of its rewards; every turn of it gets the same advantage, except with
`at_grpo`. With one trajectory per deal and role there is nothing to compare and every advantage is 0.
"""

import numpy as np

from arena.credit.batch import Floats, TrajectoryKey, TurnBatch
from arena.credit.estimators.mars import Discount
from arena.credit.estimators.relative import PROBLEM, relative


def grpo(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """GRPO: return of the trajectory standardised in its group, on all turns, (R - mean) / (std + 1e-6).

    Mean and sample deviation (n - 1) over the trajectories of a group; the deviation leads a little astray of the
    gradient (docs/gradients.md). Zero for groups of one and where all returns
    are equal. Source: GRPO (Shao et al. 2024); verl and TRL divide by the same deviation (TRL adds 1e-4), but verl
    gives a group of one its bare return.
    """
    advantages = relative(batch, batch.totals(rewards), batch.trajectory_groups(by), std=True)
    return advantages[batch.owner]


def dr_grpo(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """Dr. GRPO: return of the trajectory minus its group's mean, R - mean, on all turns.

    Made for `aggregate: constant_length`. Dividing by the deviation, as `grpo` does, weighs up tasks that are
    almost always or almost never solved. Its expectation is (n - 1)/n of the gradient in a group of n, whichever seat
    ends the match. Zero as for `grpo`. Source: Liu et al. 2025.
    """
    return relative(batch, batch.totals(rewards), batch.trajectory_groups(by))[batch.owner]


def rloo(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """RLOO: return of the trajectory minus the mean of the others in its group, n/(n - 1) · (R - mean), on all turns.

    A trajectory out of the statistics is compared with the mean of all that are in. Its expectation is the gradient,
    whichever seat ends the match. Zero as for `grpo`. Source: RLOO
    (Ahmadian et al. 2024).
    """
    groups = batch.trajectory_groups(by)
    count = batch.count_by(groups)
    others = np.maximum(count - batch.counts, 1.0)
    return (relative(batch, batch.totals(rewards), groups) * count / others)[batch.owner]


def reinforce_pp(
    batch: TurnBatch,
    rewards: Floats,
    *,
    gamma: Discount = 1.0,
    baseline: bool = False,
    by: list[TrajectoryKey] = PROBLEM,
) -> Floats:
    """REINFORCE++: return-to-go of each turn, whitened over all turns of the policy; needs no groups.

    A = (R_k - mean) / (std + 1e-6), R_k = Σ_{k' ≥ k} γ^(k'-k) r_k', mean and population deviation over all turns of
    the same policy. With `baseline` R_k gives way to the trajectory's return minus its group's mean (`by`; `gamma` is
    1 then), which is 0 for groups of one before it is whitened. Zero where a turn's value is the mean, and
    everywhere if all are equal. A little astray where policies decide how many turns there are, less in larger batches
    (docs/gradients.md). Source: Hu et al. 2025. OpenRLHF (`reinforce`, `reinforce_baseline`) whitens over
    tokens, so long replies weigh more, and takes the KL into the reward; `dr_grpo` with the transform `whiten` is its
    baseline variant as released.
    """
    values = dr_grpo(batch, rewards, by=by) if baseline else batch.returns(rewards, gamma)
    return relative(batch, values, batch.groups(["policy"]), std=True, ddof=0)


def at_grpo(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, by: list[TrajectoryKey] = PROBLEM) -> Floats:
    """AT-GRPO: GRPO among the k-th turns of a group's trajectories: (R_k - mean_k) / (std_k + 1e-6).

    What is compared is the return-to-go R_k = Σ_{k' ≥ k} γ^(k'-k) r_k' of turns of the same deal, role and number;
    `gamma: 0` compares the turns' own rewards. Sample deviation (n - 1). Zero where fewer than two trajectories got
    as far as turn k, and where all of their R_k are equal. Where policies decide how many turns there are, later turns
    are divided by the deviation of those who got there: astray of the gradient whatever the batch (docs/gradients.md).

    Source: AT-GRPO (PettingLLMs, ICLR 2026). There, K replies are drawn to one and the same history and all go on
    from the best, so that turn k's candidates share a prompt and only their own reward can be compared. Here matches
    are played on independently: from the second turn on histories differ, and what came after counts.
    """
    values, groups = batch.returns(rewards, gamma), batch.groups([*by, "turn"])
    return relative(batch, values, groups, std=True)
