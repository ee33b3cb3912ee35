"""The interface of critics and their context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from arena.credit.batch import Credited
from arena.credit.estimators.gae import Discounts
from arena.learn.divergence import Nonfinite
from arena.records import Trajectory

if TYPE_CHECKING:
    from agents.engines.base import Engine
    from agents.role import Role
    from arena.policies import Policies

Measures = dict[str, list[NDArray[np.float32]]]


class Critic(Protocol):
    """A critic: predicts the values of turns or tokens, and learns from their returns."""

    async def predict(self, trajectories: Sequence[Trajectory]) -> Measures:
        """Predict values of each trajectory's turns or tokens, by measure name; see `arena.credit.measures`."""

    async def fit(self, credited: Sequence[Credited], rng: np.random.Generator) -> dict[str, float]:
        """Fit the critic to these turns' returns.

        Returns metrics such as `explained`, the share of the returns' variance that the values explain.
        """

    def save(self, folder: Path) -> None:
        """Write the critic's state into an empty folder as JSON and safetensors."""

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""


@dataclass(frozen=True)
class CriticContext:
    """Context of the run for a critic. From a match log alone, only `discounts` and `seed` are set."""

    discounts: Discounts
    seed: int = 0
    nonfinite: Nonfinite = "stop"
    """As in `learn.nonfinite`."""
    policies: Policies | None = None
    engine: Engine | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
