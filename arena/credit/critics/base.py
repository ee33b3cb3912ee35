"""What a critic is, and what it may know of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from arena.credit.credited import Credited
from arena.credit.estimators.gae import Discounts
from arena.learn.divergence import Nonfinite
from arena.records import Trajectory

if TYPE_CHECKING:
    from agents.engines.base import Engine
    from agents.role import Role
    from arena.policies import Policies

Measures = dict[str, list[NDArray[np.float32]]]


class Critic(Protocol):
    """Foresees what turns or tokens are worth."""

    async def look(self, trajectories: Sequence[Trajectory]) -> Measures:
        """What it says of each trajectory, by the names that it gives; see `arena.credit.measures`."""

    async def fit(self, credited: Sequence[Credited], rng: np.random.Generator) -> dict[str, float]:
        """Learn what these turns led to; figures worth watching, such as the `explained` share of returns' variance."""

    def save(self, folder: Path) -> None:
        """Write all that it knows into an empty folder: JSON and safetensors."""

    def load(self, folder: Path) -> None:
        """Take up what `save` wrote."""


@dataclass(frozen=True)
class CriticContext:
    """What a critic may know of the run that it serves; from a match log alone there are the first two."""

    discounts: Discounts
    seed: int = 0
    nonfinite: Nonfinite = "stop"
    """As in `learn.nonfinite`."""
    policies: Policies | None = None
    engine: Engine | None = None
    roles: Mapping[str, Role] = field(default_factory=dict)
