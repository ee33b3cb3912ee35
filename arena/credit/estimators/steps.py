"""Estimators in two parts: how the trajectory did in its group, and how each step did among its like."""

from collections.abc import Hashable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from arena.credit.batch import Bools, Floats, TrajectoryKey, TurnBatch
from arena.credit.estimators.mars import Discount
from arena.credit.estimators.relative import PROBLEM, relative
from arena.parts.chosen import RewardName

Mode = Literal["mean_norm", "mean_std_norm"]
"""Minus the mean alone, or also by the sample deviation + 1e-6."""
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
    """GiGPO: the trajectory compared in its group, plus `weight` times each turn among those in the same situation.

    A = A_episode + weight · A_step. A_episode compares the trajectory's return R in its group; A_step compares the
    turn's discounted return G_k = r_k + γ·G_{k+1} with those of all turns in the group, of its own trajectory too,
    that were taken in the same situation (`situations`): an anchor. `mean_norm` only subtracts the mean, and without
    repeated anchors equals `dr_grpo`; `mean_std_norm` then equals `grpo`.

    Its mean has its own samples: a little astray of the gradient, less in larger batches (docs/gradients.md).
    A_step is zero for an anchor met once and among equal G_k, A_episode as for `grpo`; the sum also where they cancel.
    Source: GiGPO (Feng et al. 2025), the paper's formula; verl-agent by default takes the episode's mean over turns,
    not trajectories, and gives a group of one its bare return.
    """
    std = mode == "mean_std_norm"
    tasks = batch.trajectory_groups(by)
    anchors = batch.numbered(list(zip(tasks[batch.owner].tolist(), situations(batch), strict=True)))
    episode = relative(batch, batch.totals(rewards), tasks, std=std)[batch.owner]
    return episode + weight * relative(batch, batch.returns(rewards, gamma), anchors, std=std)


def situations(batch: TurnBatch) -> list[Hashable]:
    """[T] in which situation each turn was taken: as its game names it, else what the mover was newly shown.

    That is the text of its role's turn, token by token, whatever facts that tells; a turn that begins a stream has all
    of its context, so a role whose memory is a window of 0 is in the same situation where its whole prompt is the same.
    Where a game shows a clock and names none, none comes again. Who has no tokens was shown messages.
    """
    found: list[Hashable] = []
    for trajectory in batch.trajectories:
        shown = trajectory.observed_ids()
        for turn in trajectory.turns:
            told = tuple((m.sender, m.text) for m in turn.messages)
            found.append(turn.situation or (tuple(shown[turn.index]) if turn.index in shown else told))
    return found


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
    """UI-S1: each turn's reward among all of the task's, plus its return up to the next departure from an expert's.

    A = episode_weight · norm(r over the group's turns) + step_weight · norm(G over those of the same number), where
    G_k = r_k + γ·G_{k+1} while turns match the expert's; a turn that departs has G_k = r_k, and nothing flows back
    from it or over it, as the expert's own act was put in its place. A turn matched if the game gave it a named reward
    `match` above 0; with `credit.weights: {match: 0}` that is a mark and no reward. Rewards that stages add are not
    asked.

    Zero parts: a turn whose number nobody else in the group reached, and equal values. Source: UI-S1 (Lu et al.
    2025). Its paper compares whole trajectories in the first part, its release the single steps' rewards, as here; a
    group of one step keeps its bare reward there. `mean_norm` is the release's default, its scripts set this one.
    """
    std = mode == "mean_std_norm"
    matched = batch.column(lambda turn: turn.rewards.get(match, 0.0)) > 0
    episode = relative(batch, rewards, batch.groups([*by]), std=std)
    step = relative(batch, broken_returns(batch, rewards, matched, gamma), batch.groups([*by, "turn"]), std=std)
    return episode_weight * episode + step_weight * step


def broken_returns(batch: TurnBatch, rewards: Floats, matched: Bools, gamma: float) -> Floats:
    """[T] G_k = r_k + γ·G_{k+1} where this and the next turn matched, else r_k."""
    return batch.backward(rewards, np.where(matched & np.append(matched[1:], False), gamma, 0.0))
