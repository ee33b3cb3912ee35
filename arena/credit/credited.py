"""A trajectory with its rewards and advantages."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arena.credit.batch import Floats
from arena.records import Trajectory


@dataclass(frozen=True)
class Credited:
    """A trajectory of K turns and n sampled tokens with its rewards and advantages."""

    trajectory: Trajectory
    rewards: Floats
    """[K]"""
    advantages: Floats
    """[K]; where tokens differ, the mean over the turn's."""
    tokens: Floats | None = None
    """[n] advantages, stream after stream, where the estimator or a transform tells tokens apart."""
    learned: NDArray[np.bool_] | None = None
    """[K] whether the turn is in the loss; None is all."""
    counted: bool = True
    """Whether it was in the statistics of its groups."""
