"""The estimators of MARS: the paper's formula, which is Arena's default, and the one that its release computes."""

from typing import Annotated

import numpy as np
from pydantic import Field

from arena.credit.batch import Bools, Floats, Ints, Key, TrajectoryKey, TurnBatch
from arena.credit.estimators.relative import SPREAD, relative

AGENT: list[Key] = ["game", "role", "policy"]
"""Agent-specific: turns are compared within the same game, role and policy."""
PLAYER: list[TrajectoryKey] = ["role"]
Discount = Annotated[float, Field(ge=0, le=1)]


def mars(
    batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, by: list[Key] = AGENT, std: bool = False
) -> Floats:
    """Return-to-go of each turn minus the mean over the turns of the same game, role and policy.

    A_k = R_k - mean(R), R_k = Σ_{k' ≥ k} γ^(k'-k) r_k', the mean turn-weighted over the group; with `std` divided by
    the group's deviation. Zero where a turn's return is its group's mean. Where policies decide how many turns there
    are, the mean with its own samples leads a little astray of the gradient, less in larger batches (docs/gradients.md
    has the table for all estimators). Source: MARSHAL (ICLR 2026), the paper's
    formula; the released code computes another one, `mars_released`.
    """
    return relative(batch, batch.returns(rewards, gamma), batch.groups(by), std=std, ddof=0, least=1)


def mars_released(batch: TurnBatch, rewards: Floats, *, by: list[TrajectoryKey] = PLAYER) -> Floats:
    """MARS as MARSHAL's released code computes it, in place of the paper's formula; for replication.

    In the release's order, over the tokens of each policy's batch, c_k on the last token of turn k and 0 on others:

    1. c_k = r_k - mean(r), the mean over the turns of the same game and player (`by`);
    2. all tokens whitened; their mean is 0 after step 1, so c is only divided by their deviation;
    3. R_k = Σ_{k' ≥ k} c_k', on every token of turn k;
    4. R_k minus the mean of the *distinct* values among the player's tokens, games pooled, the 0 of padding included;
    5. all tokens whitened again.

    Differs from the paper: centring before summing shifts R_k by -(K - k + 1)·mean(r), so that it depends on how many
    turns are left; step 4 weighs a rare value like a frequent one and pools games; step 5 brings back a deviation and
    a mean over all roles, so that a role's advantages need not average 0. Token counts matter, as long turns weigh
    more in steps 2 and 5. In the release a player is a seat (0 moves first); where one role sits at both seats of a
    game, `by: [seat]` tells them apart. Distinct means by more than 1e-6: with that the numbers are those of the
    release's own functions, which compare float32 exactly, to 3e-7.

    Where policies decide how many turns there are, it is astray of the gradient whatever the batch (docs/gradients.md).
    Zero for all tokens alike when every R_k of a policy is the same, and without sampled tokens. Source: MARSHAL's
    repository, commit 2db0222, `reward_postprocess_agentic` and `compute_advantage`.
    """
    policies, players = batch.groups(["policy"]), batch.groups(["policy", *by])
    placed = np.where(batch.turn_tokens > 0, 1.0, 0.0)  # a turn without a token has no place for its reward
    tokens = batch.turn_tokens.astype(np.float64)
    unbiased = np.maximum(batch.sum_by(tokens, policies) - 1.0, 1.0)
    centred = placed * (rewards - batch.mean_by(rewards, batch.groups(["policy", "game", *by]), placed))
    values = batch.returns(_scaled(centred, batch.sum_by(centred**2, policies) / unbiased))
    values -= _mean_of_distinct(values, players, (placed > 0) & batch.counts[batch.owner])
    gaps = values - batch.mean_by(values, policies, tokens)
    return placed * _scaled(gaps, batch.sum_by(tokens * gaps**2, policies) / unbiased)


def _scaled(values: Floats, variance: Floats) -> Floats:
    """Values by their deviation, with the release's 1e-8 under the root; 0 where there is none."""
    return np.where(variance >= SPREAD**2, values / np.sqrt(variance + 1e-8), 0.0)


def _mean_of_distinct(values: Floats, groups: Ints, counted: Bools) -> Floats:
    """[T] the mean of the distinct values among those of each one's group that count, and 0 with them."""
    size = int(groups.max(initial=-1)) + 1
    group = np.concatenate([groups[counted], np.arange(size)])
    value = np.round(np.concatenate([values[counted], np.zeros(size)]), 6)
    order = np.lexsort((value, group))
    group, value = group[order], value[order]
    new = np.ones(len(value), bool)
    new[1:] = (group[1:] != group[:-1]) | (value[1:] != value[:-1])
    return (np.bincount(group[new], value[new], size) / np.bincount(group[new], minlength=size))[groups]
