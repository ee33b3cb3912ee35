"""Credit assignment: from named rewards to one advantage per turn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from arena.credit.batch import (
    CreditedTrajectory,
    Floats,
    TokenAdvantages,
    TurnBatch,
    average_over_turns,
    spread_to_tokens,
)
from arena.credit.selection import Selection
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.part_config import PartConfig
from arena.records import is_excused


def assign(batch: TurnBatch, rule: CreditSpec) -> list[CreditedTrajectory]:
    """Turn a batch's named rewards into one advantage per turn, as the credit rule prescribes.

    Order: reward stages and weights, selectors, estimator, transforms. Returns one `CreditedTrajectory` per trajectory
    that no selector drops. Stateful estimators update `batch.memory`. Raises ConfigError if the estimator returns a
    wrong number of values, or values that are not finite.
    """
    rewards = compute_turn_rewards(batch, rule)
    selection = select(batch, rewards, rule)
    if not selection.kept.all():
        batch, rewards, selection = _remove_dropped(batch, rewards, selection)
    batch = batch.with_counted(selection.counted)
    estimate = estimate_advantages(rule.estimator, batch, rewards)
    tokens = estimate.values if isinstance(estimate, TokenAdvantages) else None
    if rule.transforms:
        tokens = spread_to_tokens(batch, estimate) if tokens is None else tokens
        for transform in rule.transforms:
            tokens = transform(batch, tokens)
    advantages = estimate if tokens is None else average_over_turns(batch, tokens)
    return _split_by_trajectory(batch, rewards, advantages, tokens, selection)


def estimate_advantages(estimator: PartConfig, batch: TurnBatch, rewards: Floats) -> Any:
    """Run the estimator on a batch and check its advantages.

    `rewards` has one entry per turn. Returns a float64 array with one entry per turn, or `TokenAdvantages` with one per
    sampled token. Raises ConfigError if the number of values is wrong or a value is not finite.
    """
    estimate = estimator(batch, rewards)
    by_token = isinstance(estimate, TokenAdvantages)
    values, expected = (estimate.values, batch.token_turns) if by_token else (estimate, rewards)
    try:
        is_valid = np.shape(values) == expected.shape and bool(np.isfinite(values).all())
    except (TypeError, ValueError):  # no numbers, or a ragged list of them
        is_valid = False
    if not is_valid:
        each = "token" if by_token else "turn"
        raise ConfigError(
            f"credit.estimator: {estimator.name} has to return {len(expected)} finite numbers, one per {each}"
        )
    return estimate if by_token else np.asarray(values, np.float64)


def compute_turn_rewards(batch: TurnBatch, rule: CreditSpec) -> Floats:
    """Return each turn's total reward, [T]: Σ weight · named reward, after the reward stages; weights default to 1."""
    columns = compute_named_rewards(batch, rule.stages)
    total = np.zeros(len(batch.owner))
    for name, column in columns.items():
        total += column * (rule.weights[name](batch.clock) if name in rule.weights else 1.0)
    return total


def compute_named_rewards(batch: TurnBatch, stages: Sequence[PartConfig]) -> dict[str, Floats]:
    """Return each named reward per turn, [T], 0 for turns without it, after the reward stages.

    Starts with the games' own rewards. The stages run in order, and each adds or changes names.
    """
    columns: dict[str, Floats] = {}
    for row, turn in enumerate(batch.turns):
        for name, value in turn.rewards.items():
            if name not in columns:
                columns[name] = np.zeros(len(batch.owner))
            columns[name][row] = value
    for stage in stages:
        columns |= stage(batch, columns)
    return columns


def select(batch: TurnBatch, rewards: Floats, rule: CreditSpec) -> Selection:
    """Apply the credit rule's selectors in order and return the masks of learned turns and counted trajectories.

    Excused turns are never learned: truncated replies without a legal act whose penalty the role waived. Trajectories
    with a reward of NaN, which a stage could not value, are dropped before the selectors run.
    """
    selection = Selection.select_all(batch).exclude_from_loss(batch.column(is_excused) > 0)
    unvalued = np.isnan(rewards)
    if unvalued.any():
        selection = selection.drop(batch, np.bincount(batch.owner, unvalued, len(batch.lengths)) > 0)
        batch, rewards = batch.with_counted(selection.counted), np.where(unvalued, 0.0, rewards)
    for selector in rule.select:
        selection = selector(batch, rewards, selection)
    return selection


def _remove_dropped(batch: TurnBatch, rewards: Floats, selection: Selection) -> tuple[TurnBatch, Floats, Selection]:
    """Return the batch, turn rewards and selection without the dropped trajectories."""
    rows = np.flatnonzero(selection.kept).tolist()
    turns = selection.kept[batch.owner]
    remaining = TurnBatch(
        [batch.trajectories[i] for i in rows],
        batch.clock,
        batch.rng,
        batch.memory,
        {name: [arrays[i] for i in rows] for name, arrays in batch.measures.items()},
    )
    return remaining, rewards[turns], Selection(selection.learned[turns], selection.counted[rows], selection.kept[rows])


def _split_by_trajectory(
    batch: TurnBatch, rewards: Floats, advantages: Floats, tokens: Floats | None, selection: Selection
) -> list[CreditedTrajectory]:
    """Split the arrays into one `CreditedTrajectory` per trajectory. `tokens` are token advantages."""
    cuts = batch.starts[1:-1]
    token_parts: list[Floats | None] = [None] * len(batch.lengths)
    if tokens is not None:
        token_parts = list(
            np.split(tokens, np.searchsorted(batch.owner[batch.token_turns], np.arange(1, len(batch.lengths))))
        )
    learned = np.split(selection.learned, cuts)
    return [
        CreditedTrajectory(
            trajectory=trajectory, rewards=r, advantages=a, tokens=t, learned=None if s.all() else s, counted=c
        )
        for trajectory, r, a, t, s, c in zip(
            batch.trajectories,
            np.split(rewards, cuts),
            np.split(advantages, cuts),
            token_parts,
            learned,
            selection.counted.tolist(),
            strict=False,
        )
    ]
