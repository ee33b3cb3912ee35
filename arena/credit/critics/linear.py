"""The turn-level critic `linear`: ridge regression on hashed words, in NumPy."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agents.computing import compute
from arena.credit.batch import CreditedTrajectory, Floats, TurnBatch
from arena.credit.critics.base import CriticContext
from arena.credit.critics.words import hash_states
from arena.credit.estimators.gae import compute_turn_returns
from arena.learn.divergence import is_finite_step
from arena.records import Trajectory

_ADVICE = "scale rewards down with credit.weights"
_INTERCEPT_RIDGE = 1e-6
"""Ridge of the intercept: values shrink to the mean return, not to 0."""


class Linear:
    """Critic that values turns by ridge regression on hashed words.

    The model is two decaying sums over iterations, Σ φφᵀ and Σ φR; φ starts with an intercept of 1.
    """

    def __init__(self, context: CriticContext, features: int, ridge: float, decay: float) -> None:
        self.discounts, self.nonfinite = context.discounts, context.nonfinite
        self.features, self.decay = features, decay
        self.ridge = np.diag(np.append(_INTERCEPT_RIDGE, np.full(features, ridge)))
        self.squares: Floats = np.zeros((1 + features, 1 + features))
        self.products: Floats = np.zeros(1 + features)

    async def predict(self, trajectories: Sequence[Trajectory]) -> dict[str, list[NDArray[np.float32]]]:
        """Return the value of each turn (`values`, one array per trajectory), learned from earlier iterations."""
        return await compute(self._predict, trajectories)

    def _predict(self, trajectories: Sequence[Trajectory]) -> dict[str, list[NDArray[np.float32]]]:
        values = self._compute_values(self._compute_features(trajectories)).astype(np.float32)
        return {"values": split_by_trajectory(trajectories, values)}

    async def fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        """Decay the sums, add these turns with their returns, and return metrics: `error`, `explained`, `skipped`.

        `error` and `explained` measure the predictions before the fit. If the new sums are not finite, raises
        DivergedError, or with `nonfinite: skip` keeps the old ones and returns `skipped` 1.
        """
        return await compute(self._fit, credited)

    def _fit(self, credited: Sequence[CreditedTrajectory]) -> dict[str, float]:
        trajectories = [c.trajectory for c in credited]
        rewards = np.concatenate([c.rewards for c in credited]) if credited else np.zeros(0)
        features, returns = (
            self._compute_features(trajectories),
            compute_turn_returns(TurnBatch(trajectories), rewards, self.discounts),
        )
        metrics = measure_fit(self._compute_values(features), returns)
        squares = self.decay * self.squares + features.T @ features
        products = self.decay * self.products + features.T @ returns
        size = float(np.abs(products).sum())
        is_finite = is_finite_step(size, self.nonfinite, "critic linear", _ADVICE, "its sum of returns")
        if is_finite:
            self.squares, self.products = squares, products
        return metrics | {"skipped": float(not is_finite)}

    def save(self, folder: Path) -> None:
        """Write the two sums to `linear.safetensors` in the folder."""
        from safetensors.numpy import save_file

        save_file({"squares": self.squares, "products": self.products}, folder / "linear.safetensors")

    def load(self, folder: Path) -> None:
        """Restore the two sums that `save` wrote, bit for bit."""
        from safetensors.numpy import load_file

        state = load_file(folder / "linear.safetensors")
        self.squares, self.products = state["squares"], state["products"]

    def _compute_features(self, trajectories: Sequence[Trajectory]) -> Floats:
        features = hash_states(trajectories, self.features)
        return np.concatenate([np.ones((len(features), 1)), features], 1)

    def _compute_values(self, features: Floats) -> Floats:
        return np.asarray(features @ np.linalg.solve(self.squares + self.ridge, self.products))


def split_by_trajectory(trajectories: Sequence[Trajectory], values: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Split an array with one value per turn into one array per trajectory."""
    return np.split(values, np.cumsum([len(t.turns) for t in trajectories]))[:-1]


def measure_fit(values: Floats, returns: Floats) -> dict[str, float]:
    """Return metrics of predicted values: `error`, the mean (R - V)², and `explained`, the explained share of variance.

    Returns {} without turns, and no `explained` if the returns do not vary.
    """
    if not len(returns):
        return {}
    error, variance = float(np.mean((returns - values) ** 2)), float(returns.var())
    return {"error": error, "explained": 1.0 - error / variance} if variance > 0 else {"error": error}
