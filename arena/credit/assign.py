"""Credit assignment: from named rewards to one advantage per turn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from arena.credit.batch import Credited, Floats, TokenAdvantages, TurnBatch, spread_to_tokens, turn_means
from arena.credit.selection import Selection
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.chosen import Chosen
from arena.records import is_excused


def assign(batch: TurnBatch, rule: CreditSpec) -> list[Credited]:
    """Compute rewards, selection, advantages and transforms of a batch.

    Returns one `Credited` per trajectory; trajectories that selection drops are missing.
    """
    rewards = turn_rewards(batch, rule)
    selection = select(batch, rewards, rule)
    if not selection.kept.all():
        batch, rewards, selection = _without_dropped(batch, rewards, selection)
    batch = batch.counting(selection.counted)
    estimate = estimate_advantages(rule.estimator, batch, rewards)
    tokens = estimate.values if isinstance(estimate, TokenAdvantages) else None
    if rule.transforms:
        tokens = spread_to_tokens(batch, estimate) if tokens is None else tokens
        for transform in rule.transforms:
            tokens = transform(batch, tokens)
    advantages = estimate if tokens is None else turn_means(batch, tokens)
    return _by_trajectory(batch, rewards, advantages, tokens, selection)


def estimate_advantages(estimator: Chosen, batch: TurnBatch, rewards: Floats) -> Any:
    """Return the estimator's advantages: [T] floats, or TokenAdvantages.

    Raises ConfigError if the estimator returns the wrong number of values or a value that is not finite.
    """
    estimate = estimator(batch, rewards)
    by_token = isinstance(estimate, TokenAdvantages)
    values, wanted = (estimate.values, batch.token_turns) if by_token else (estimate, rewards)
    try:
        fits = np.shape(values) == wanted.shape and bool(np.isfinite(values).all())
    except (TypeError, ValueError):  # no numbers, or a ragged list of them
        fits = False
    if not fits:
        each = "token" if by_token else "turn"
        raise ConfigError(f"credit.estimator: {estimator.name} has to give {len(wanted)} finite numbers, one a {each}")
    return estimate if by_token else np.asarray(values, np.float64)


def turn_rewards(batch: TurnBatch, rule: CreditSpec) -> Floats:
    """Return [T] the reward of each turn: Σ weight[name] · reward[name] over all named rewards after the stages."""
    columns = named_rewards(batch, rule.stages)
    total = np.zeros(len(batch.owner))
    for name, column in columns.items():
        total += column * (rule.weights[name](batch.clock) if name in rule.weights else 1.0)
    return total


def named_rewards(batch: TurnBatch, stages: Sequence[Chosen]) -> dict[str, Floats]:
    """Return the named rewards as columns [T]: the game's own, added to and changed by the stages in order."""
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
    """Apply the rule's selectors in order. Excused replies (`is_excused`) are always out of the loss."""
    selection = Selection.everything(batch).out_of_loss(batch.column(is_excused) > 0)
    for selector in rule.select:
        selection = selector(batch, rewards, selection)
    return selection


def _without_dropped(batch: TurnBatch, rewards: Floats, selection: Selection) -> tuple[TurnBatch, Floats, Selection]:
    """Return the batch, rewards and selection without dropped trajectories."""
    rows = np.flatnonzero(selection.kept).tolist()
    turns = selection.kept[batch.owner]
    left = TurnBatch(
        [batch.trajectories[i] for i in rows],
        batch.clock,
        batch.rng,
        batch.memory,
        {name: [arrays[i] for i in rows] for name, arrays in batch.measures.items()},
    )
    return left, rewards[turns], Selection(selection.learned[turns], selection.counted[rows], selection.kept[rows])


def _by_trajectory(
    batch: TurnBatch, rewards: Floats, advantages: Floats, tokens: Floats | None, selection: Selection
) -> list[Credited]:
    """Split the flat columns into one `Credited` per trajectory."""
    cuts = batch.starts[1:-1]
    own: list[Floats | None] = [None] * len(batch.lengths)
    if tokens is not None:
        own = list(np.split(tokens, np.searchsorted(batch.owner[batch.token_turns], np.arange(1, len(batch.lengths)))))
    learned = np.split(selection.learned, cuts)
    return [
        Credited(trajectory, r, a, t, None if s.all() else s, c)
        for trajectory, r, a, t, s, c in zip(
            batch.trajectories,
            np.split(rewards, cuts),
            np.split(advantages, cuts),
            own,
            learned,
            selection.counted.tolist(),
            strict=False,
        )
    ]
