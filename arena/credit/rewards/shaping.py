"""Reward shaping: clipped, gated, dense and last-turn rewards, and controls."""

from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from arena.credit.batch import Floats, Key, TurnBatch
from arena.credit.rewards.columns import Columns, Part, get_column, put_on_last_turn

DEAL: list[Key] = ["game", "seed", "role", "policy"]
"""Group by task: `play.group` matches share a deal."""


def _check_bounds(bounds: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    low, high = bounds
    if low is None and high is None:
        raise ValueError("both bounds are null: give a lower or an upper bound")
    if low is not None and high is not None and low > high:
        raise ValueError(f"the lower bound {low:g} is above the upper bound {high:g}: write [low, high]")
    return bounds


Bounds = Annotated[tuple[float | None, float | None], Field(strict=False), AfterValidator(_check_bounds)]


def clip(batch: TurnBatch, rewards: Columns, *, part: Part, between: Bounds) -> dict[str, Floats]:
    """Clip the reward `part` of every turn `between` [low, high]; null is no bound on that side."""
    low, high = between
    return {part: np.clip(get_column(batch, rewards, part), low, high)}


def gate(
    batch: TurnBatch,
    rewards: Columns,
    *,
    on: Annotated[dict[Part, float], Field(min_length=1)],
    parts: Annotated[list[Part], Field(min_length=1)],
) -> dict[str, Floats]:
    """Pay a reward only if a trajectory's total of every more important reward exceeds its threshold.

    `on` has the thresholds by reward, the most important first. Each is gated by those before it, and `parts` by all of
    them: total = r_1 + [r_1 > δ_1] (r_2 + [r_2 > δ_2] (… + Σ parts)). Weights are `credit.weights`. For example,
    `on: {submitted: 0}` removes the rewards for form and tools from an agent that submits nothing.

    Source: G-RA (gated reward accumulation), from descriptions: no code was released. Gating never raises the total of
    rewards >= 0. It removes penalties as well, which rewards failing, so leave penalties out of `parts`. Every gated
    reward is zero in a trajectory that fails.
    """
    is_open = np.ones(len(batch.lengths), bool)
    gated = {}
    for part, threshold in on.items():
        values = get_column(batch, rewards, part)
        gated[part] = values * is_open[batch.owner]
        is_open = is_open & (batch.totals(values) > threshold)
    return gated | {part: get_column(batch, rewards, part) * is_open[batch.owner] for part in parts}


def dense(
    batch: TurnBatch, rewards: Columns, *, part: Part, outcome: Part, maximum: Annotated[float, Field(gt=0)]
) -> dict[str, Floats]:
    """Scale sub-goal rewards so that a trajectory's total is at most 1.

    Replaces the reward `part`, r_k, by r_k / n, with n the number of its positive rewards if the trajectory wins (total
    of the reward `outcome` > 0), else `maximum`, the largest possible number; n is at least 1. For sub-goals that pay
    up to 1 each a win totals at most 1, and 1 if each pays 1. Source: the Practitioner's Guide (meow-tea-taro), where
    `maximum` belongs to the instance, and the outcome itself is not paid: set its weight to 0 for that.
    """
    steps = get_column(batch, rewards, part)
    has_won = batch.totals(get_column(batch, rewards, outcome)) > 0
    reached_count = batch.totals((steps > 0).astype(np.float64))
    return {part: steps / np.maximum(1.0, np.where(has_won, reached_count, maximum))[batch.owner]}


def outcome_only(batch: TurnBatch, rewards: Columns, *, parts: list[Part] | None = None) -> dict[str, Floats]:
    """Control without turn-level credit: move each reward's total over a trajectory to the last turn.

    `parts` are the moved rewards, null for all. Weights and totals are unchanged.
    """
    names = list(rewards) if parts is None else parts
    return {part: put_on_last_turn(batch, batch.totals(get_column(batch, rewards, part))) for part in names}


def shuffle(
    batch: TurnBatch, rewards: Columns, *, part: Part, by: list[Key] = DEAL, last: bool = True
) -> dict[str, Floats]:
    """Permute the reward `part` over the turns of each group: the matched random control of a shaping reward.

    Without `last` the last turns keep their values, for a reward that they never get, such as `information_gain`.
    """
    values, groups = get_column(batch, rewards, part), batch.groups(by)
    rows = np.flatnonzero(~batch.last | last)
    shuffled = values.copy()
    shuffled[rows] = values[batch.permute_within(rows, groups[rows])]
    return {part: shuffled}
