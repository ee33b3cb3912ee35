"""The estimators of MARSHAL: the paper's formula, which is Arena's default, and that of the released code."""

from typing import Annotated

import numpy as np
from pydantic import Field

from arena.credit.batch import Bools, Floats, Ints, Key, TrajectoryKey, TurnBatch
from arena.credit.estimators.relative import SPREAD, compare_in_groups

AGENT: list[Key] = ["game", "role", "policy"]
"""Agent-specific groups: turns are compared within the same game, role and policy."""
PLAYER: list[TrajectoryKey] = ["role"]
Discount = Annotated[float, Field(ge=0, le=1)]


def mars(
    batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, by: list[Key] = AGENT, std: bool = False
) -> Floats:
    """MARS: subtract from each turn's return-to-go the mean over the turns of the same game, role and policy.

    A_k = R_k - mean(R), R_k = Σ_{k' ≥ k} γ^(k'-k) r_k', the mean turn-weighted over the group; with `std` divided by
    the group's deviation. Zero if a turn's return is its group's mean. If policies influence the number of turns, the
    mean over its own samples biases the gradient slightly, less in larger batches (docs/gradients.md has the table for
    all estimators). Source: MARSHAL (ICLR 2026), the paper's formula; the released code computes `mars_released`.
    """
    return compare_in_groups(batch, batch.returns(rewards, gamma), batch.groups(by), std=std, ddof=0, min_count=1)


def mars_released(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PLAYER) -> Floats:
    """MARS, released code: compute MARSHAL's advantages as its code does, for replication, not as the paper states.

    In the release's order, over the tokens of each policy's batch, c_k on the last token of turn k and 0 on others:

    1. c_k = r_k - mean(r), the mean over the turns of the same game and player (`by`);
    2. all tokens whitened; their mean is 0 after step 1, so c is only divided by their deviation;
    3. R_k = Σ_{k' ≥ k} c_k', on every token of turn k;
    4. R_k minus the mean of the *distinct* values among the player's tokens, games pooled, the 0 of padding included;
    5. all tokens whitened again.

    Differences from the paper: centring before summing shifts R_k by -(K - k + 1)·mean(r), which depends on the number
    of remaining turns. Step 4 gives rare and frequent values equal weight and pools games. Step 5 divides by the
    deviation and subtracts the mean over all roles, so a role's advantages need not average 0. Token counts matter,
    because long turns weigh more in steps 2 and 5. In the release a player is a seat (0 moves first); if one role holds
    both seats of a game, use `by: [seat]`. Values are distinct if they differ by more than 1e-6: this reproduces the
    release's own functions, which compare float32 exactly, to 3e-7.

    Biased for any batch size if policies influence the number of turns (docs/gradients.md). Zero for all tokens if
    every R_k of a policy is the same, and without sampled tokens. Source: MARSHAL's repository, commit 2db0222,
    `reward_postprocess_agentic` and `compute_advantage`.
    """
    policies, players = batch.groups(["policy"]), batch.groups(["policy", *by])
    token_mask = np.where(batch.turn_tokens > 0, 1.0, 0.0)  # a turn without a token has no place for its reward
    tokens = batch.turn_tokens.astype(np.float64)
    unbiased = np.maximum(batch.sum_by(tokens, policies) - 1.0, 1.0)
    centred = token_mask * (rewards - batch.mean_by(rewards, batch.groups(["policy", "game", *by]), token_mask))
    values = batch.returns(_divide_by_deviation(centred, batch.sum_by(centred**2, policies) / unbiased))
    values -= _average_distinct(values, players, (token_mask > 0) & batch.counted_mask[batch.owner])
    gaps = values - batch.mean_by(values, policies, tokens)
    return token_mask * _divide_by_deviation(gaps, batch.sum_by(tokens * gaps**2, policies) / unbiased)


def _divide_by_deviation(values: Floats, variance: Floats) -> Floats:
    """Divide values by their deviation, with the release's 1e-8 under the root; 0 if the deviation is below SPREAD."""
    return np.where(variance >= SPREAD**2, values / np.sqrt(variance + 1e-8), 0.0)


def _average_distinct(values: Floats, groups: Ints, counted: Bools) -> Floats:
    """Return, for each turn, the mean of 0 and the distinct values among its group's counted turns, [T]."""
    size = int(groups.max(initial=-1)) + 1
    group = np.concatenate([groups[counted], np.arange(size)])
    value = np.round(np.concatenate([values[counted], np.zeros(size)]), 6)
    order = np.lexsort((value, group))
    group, value = group[order], value[order]
    new = np.ones(len(value), bool)
    new[1:] = (group[1:] != group[:-1]) | (value[1:] != value[:-1])
    return (np.bincount(group[new], value[new], size) / np.bincount(group[new], minlength=size))[groups]
