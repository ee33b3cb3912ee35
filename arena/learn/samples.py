"""Training samples."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agents.stream import Stream

Floats = NDArray[np.float32]
Source = Literal["played", "replayed", "logged", "demonstration"]


@dataclass(frozen=True)
class Sample:
    """A stream to learn from; arrays have one entry per sampled token."""

    stream: Stream
    advantages: Floats
    behaviour: Floats
    """Log-probabilities at sampling time."""
    temperature: float
    places: NDArray[np.int64]
    """The number of the token's turn within its trajectory, from 0."""
    learned: NDArray[np.bool_]
    """Whether the token is in the loss; the others are context."""
    reference: Floats | None = None
    """Log-probabilities under the frozen reference, when a regulariser asks for them."""
    pairs: NDArray[np.int64] | None = None
    """The number of the pair of answers that the token's turn is in, -1 where it is in none; None is nowhere."""
    source: Source = "played"
    """Origin: the current weights, older ones, another run's log, or a demonstration to imitate."""
    fresh: NDArray[np.bool_] | None = None
    """Whether the weights that are about to learn sampled the token, where older ones may have; None is all of them."""

    def with_reference(self, logprobs: Floats) -> "Sample":
        """Return the sample with the reference's log-probabilities."""
        return replace(self, reference=logprobs)

    @property
    def turns(self) -> NDArray[np.int64]:
        """Index in the match of the turn that sampled each token."""
        return np.array([t for t, own in zip(self.stream.turns, self.stream.mask, strict=True) if own], np.int64)
