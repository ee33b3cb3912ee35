"""Credit: what every turn earned and what it is worth to the role that took it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arena.credit.estimators import ESTIMATORS, key_of, normalise
from arena.credit.rewards import turn_rewards
from arena.records import Trajectory


@dataclass(frozen=True)
class CreditRule:
    """How rewards become advantages; recomputable from a match log alone."""

    estimator: str = "mars"
    gamma: float = 1.0
    stages: tuple[tuple[str, Mapping[str, float]], ...] = ()
    weights: Mapping[str, float] | None = None
    by: tuple[str, ...] = ("game", "role", "policy")
    std: bool = False


@dataclass(frozen=True)
class Credited:
    """A trajectory with one reward and one advantage per turn, float64 arrays of len(turns)."""

    trajectory: Trajectory
    rewards: np.ndarray
    advantages: np.ndarray


def assign(trajectories: Sequence[Trajectory], rule: CreditRule, rng: np.random.Generator) -> list[Credited]:
    """Rewards by stage and weight, the estimator's turn values, then normalisation within each group."""
    rewards = [turn_rewards(t, rule.stages, rule.weights or {}) for t in trajectories]
    keys = [key_of(t, rule.by) for t in trajectories]
    values = ESTIMATORS[rule.estimator](rewards, keys, rule.gamma, rng)
    advantages = normalise(values, keys, rule.std)
    return [
        Credited(t, np.asarray(r, dtype=np.float64), a)
        for t, r, a in zip(trajectories, rewards, advantages, strict=True)
    ]
