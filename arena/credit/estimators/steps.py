"""Two-part estimators: the trajectory compared in its group, and each step compared with similar steps."""

from collections.abc import Hashable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from arena.credit.batch import Bools, Floats, TrajectoryKey, TurnBatch
from arena.credit.estimators.mars import Discount
from arena.credit.estimators.relative import PROBLEM, compare_in_groups
from arena.parts.part_config import RewardName

Mode = Literal["mean_norm", "mean_std_norm"]
"""Subtract the mean only, or also divide by the sample deviation + 1e-6."""
Weight = Annotated[float, Field(ge=0)]


def gigpo(
    batch: TurnBatch,
    rewards: Floats,
    *,
    gamma: Discount = 0.95,
    weight: Weight = 1.0,
    mode: Mode = "mean_norm",
    by: list[TrajectoryKey] = PROBLEM,
) -> Floats:
    """GiGPO: add a trajectory's advantage in its group and `weight` times a turn's among turns in the same situation.

    A = A_episode + weight · A_step. A_episode compares the trajectory's return R in its group. A_step compares the
    turn's discounted return G_k = r_k + γ·G_{k+1} with those of all turns of the group, its own trajectory's included,
    in the same situation (`get_situations`): an anchor. `mean_norm` only subtracts the mean, and without repeated
    anchors equals `dr_grpo`; `mean_std_norm` then equals `grpo`.

    The mean includes the turn's own sample, which biases the gradient slightly, less in larger batches
    (docs/gradients.md). A_step is zero for an anchor met once and among equal G_k, A_episode as for `grpo`; the sum
    also if they cancel. Source: GiGPO (Feng et al. 2025), the paper's formula; verl-agent by default takes the
    episode's mean over turns, not trajectories, and gives a group of one its bare return.
    """
    std = mode == "mean_std_norm"
    tasks = batch.trajectory_groups(by)
    anchors = batch.number_labels(list(zip(tasks[batch.owner].tolist(), get_situations(batch), strict=True)))
    episode = compare_in_groups(batch, batch.totals(rewards), tasks, std=std)[batch.owner]
    return episode + weight * compare_in_groups(batch, batch.returns(rewards, gamma), anchors, std=std)


def get_situations(batch: TurnBatch) -> list[Hashable]:
    """Return each turn's situation, a key that is equal for comparable turns.

    It is the game's own label of the situation, or without one the turn's new observation tokens; a seat without tokens
    has its messages instead. The first observation of a stream is its whole context, so with a memory window of 0 equal
    situations are equal prompts. If a game shows a clock and sets no labels, no situation repeats.
    """
    keys: list[Hashable] = []
    for trajectory in batch.trajectories:
        observations = trajectory.observed_ids()
        for turn in trajectory.turns:
            messages = tuple((m.sender, m.text) for m in turn.messages)
            keys.append(turn.situation or (tuple(observations[turn.index]) if turn.index in observations else messages))
    return keys


def step_episode(
    batch: TurnBatch,
    rewards: Floats,
    *,
    match: Annotated[str, RewardName()] = "match",
    gamma: Discount = 0.5,
    episode_weight: Weight = 1.0,
    step_weight: Weight = 1.0,
    mode: Mode = "mean_std_norm",
    by: list[TrajectoryKey] = PROBLEM,
) -> Floats:
    """UI-S1: compare each turn's reward in its task, and its return up to the next deviation from the expert's acts.

    A = episode_weight · norm(r over the group's turns) + step_weight · norm(G over those of the same number), where G_k
    = r_k + γ·G_{k+1} while turns match the expert's. A deviating turn has G_k = r_k, and no reward flows back from or
    across it, because the expert's act replaced it. A turn matched if the game gave it a named reward `match` above 0;
    with `credit.weights: {match: 0}` it only marks the turn. `match` cannot be the reward of a stage.

    A part is zero if its values are equal, the second also at a turn number that no other trajectory of the group
    reached. Source: UI-S1 (Lu et al. 2025). Its paper compares whole trajectories in the first part, its release the
    single steps' rewards, as here, but a group of one step keeps its bare reward there. The release defaults to
    `mean_norm`; its scripts set `mean_std_norm`.
    """
    std = mode == "mean_std_norm"
    matched = batch.column(lambda turn: turn.rewards.get(match, 0.0)) > 0
    episode = compare_in_groups(batch, rewards, batch.groups([*by]), std=std)
    step = compare_in_groups(
        batch, compute_broken_returns(batch, rewards, matched, gamma), batch.groups([*by, "turn"]), std=std
    )
    return episode_weight * episode + step_weight * step


def compute_broken_returns(batch: TurnBatch, rewards: Floats, matched: Bools, gamma: float) -> Floats:
    """Return each turn's return G_k, [T]: r_k + γ·G_{k+1} if this and the next turn matched the expert's, else r_k."""
    return batch.scan_backward(rewards, np.where(matched & np.append(matched[1:], False), gamma, 0.0))
