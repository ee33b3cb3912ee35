"""From rewards to one value per turn. An estimator is one function and its name in a table."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from arena.records import Trajectory

Key = tuple[str, ...]
Estimator = Callable[[Sequence[Sequence[float]], Sequence[Key], float, np.random.Generator], list[np.ndarray]]
"""(turn rewards per trajectory, group key per trajectory, gamma, generator) -> float64 values, one per turn."""


def key_of(trajectory: Trajectory, by: Sequence[str]) -> Key:
    """The group whose statistics a trajectory belongs to, e.g. by (game, role, policy)."""
    return tuple(str(getattr(trajectory, name)) for name in by)


def returns_to_go(rewards: Sequence[float], gamma: float) -> np.ndarray:
    """R_k = Σ_{k' ≥ k} γ^(k'-k) r_k' for each turn of one trajectory, float64."""
    values = np.zeros(len(rewards))
    total = 0.0
    for k in range(len(rewards) - 1, -1, -1):
        total = rewards[k] + gamma * total
        values[k] = total
    return values


def mars(
    rewards: Sequence[Sequence[float]], keys: Sequence[Key], gamma: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Turn returns; with mean-normalisation by (game, role, policy) the estimator of the MARS paper (MARSHAL, 2026)."""
    return [returns_to_go(r, gamma) for r in rewards]


def zero(
    rewards: Sequence[Sequence[float]], keys: Sequence[Key], gamma: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """The control that learns nothing: every turn is worth 0."""
    return [np.zeros(len(r)) for r in rewards]


def shuffled(
    rewards: Sequence[Sequence[float]], keys: Sequence[Key], gamma: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """The control that keeps the numbers and breaks the credit: turn returns permuted within each group."""
    values = mars(rewards, keys, gamma, rng)
    groups: dict[Key, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        groups[key].append(i)
    for members in groups.values():
        pool = rng.permutation(np.concatenate([values[i] for i in members]))
        for i in members:
            values[i], pool = pool[: len(values[i])], pool[len(values[i]) :]
    return values


ESTIMATORS: dict[str, Estimator] = {"mars": mars, "zero": zero, "shuffled": shuffled}


def normalise(values: Sequence[np.ndarray], keys: Sequence[Key], std: bool = False) -> list[np.ndarray]:
    """Subtract each group's mean over its turns (turn-weighted); with `std` divide by its deviation too.

    A group whose values are all equal becomes 0 throughout: nothing in it was better than anything else.
    """
    groups: dict[Key, list[np.ndarray]] = defaultdict(list)
    for value, key in zip(values, keys, strict=True):
        groups[key].append(value)
    pooled = {key: np.concatenate(members) for key, members in groups.items()}
    centre = {key: float(pool.mean()) if len(pool) else 0.0 for key, pool in pooled.items()}
    scale = {key: (float(pool.std()) if std and len(pool) else 1.0) for key, pool in pooled.items()}
    return [
        (value - centre[key]) / (scale[key] + 1e-6 if std else 1.0) for value, key in zip(values, keys, strict=True)
    ]
