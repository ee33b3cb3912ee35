"""The interface of trainers, wherever they compute."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from agents.policy import Policy
from agents.published import Weights
from agents.scoring import StreamScores
from agents.stream import Stream
from arena.learn.plan import Plan
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec, UpdateSpec
from arena.parts.schedules import Clock


class Trainer(Protocol):
    """A trainer: one policy's weights and optimiser, updated by plans."""

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = ...) -> Plan:
        """Plan an update from samples, given the steps so far: pure, nothing is computed on the device."""

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Plan an imitation of the samples by maximum likelihood."""

    async def update(self, plan: Plan, stepped: Callable[[], None] = ...) -> dict[str, float]:
        """Carry a plan out; what happened, as means over tokens, and how many steps were left out (`skipped`).

        `stepped` is called after every step, in the event loop. GateError before any weight has changed, DivergedError
        where what was learned does not count.
        """

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Log-probabilities and entropies of the sampled tokens under the current weights."""

    async def save(self) -> Mapping[str, torch.Tensor]:
        """The optimiser's state on the CPU, by parameter and moment."""

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore the optimiser from `save`'s tensors, now in `optimizer.safetensors`, and from `state`."""

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON: `steps` taken, and the regularisers' `memory`."""

    async def weights(self) -> Weights:
        """The weights as they are now."""

    async def close(self) -> None:
        """Release everything it holds; no call may follow."""


MakeTrainer = Callable[[Policy, UpdateSpec, bool], Trainer]
"""From a policy with its first weights, how it is to learn, and whether it computes in bfloat16."""
