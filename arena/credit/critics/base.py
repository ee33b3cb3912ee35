"""Interface of critics, and what a run provides to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from arena.credit.batch import CreditedTrajectory
from arena.credit.estimators.gae import Discounts
from arena.learn.divergence import Nonfinite
from arena.records import Trajectory

if TYPE_CHECKING:
    from arena.policies import Policies

Measures = dict[str, list[NDArray[np.float32]]]


class Critic(Protocol):
    """Interface of critics, which predict the values of turns or tokens and learn from returns."""

    async def predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        """Return the values by measure name (`values`, `action_values`, `token_values`), one array per trajectory."""

    async def fit(self, credited: Sequence[CreditedTrajectory], rng: np.random.Generator) -> dict[str, float]:
        """Train the critic on the returns of these turns, and return metrics.

        A common metric is `explained`, the share of the returns' variance that the values explain.
        """

    def save(self, folder: Path) -> None:
        """Write the critic's state into an empty folder as JSON and safetensors."""

    def load(self, folder: Path) -> None:
        """Restore the state that `save` wrote to the folder."""


@dataclass(frozen=True, kw_only=True)
class CriticContext:
    """Parts of a run that its critic may use. From a match log alone, only `discounts` and `seed` are set."""

    discounts: Discounts
    seed: int = 0
    nonfinite: Nonfinite = "stop"
    """As in `learn.nonfinite`."""
    policies: Policies | None = None
