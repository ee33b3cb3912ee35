"""Interface of trainers, in this process or elsewhere."""

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
    """Interface of trainers: one policy's weights and optimiser, updated by plans.

    Make a plan with `plan` and carry it out with `update`. `save`, `state` and `load` are for checkpoints.
    """

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = ...) -> Plan:
        """Plan an update from samples and the number of steps so far. Computes nothing on the device."""

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Plan supervised learning on the samples by the settings `spec`; `rng` shuffles the samples."""

    async def update(self, plan: Plan, on_step: Callable[[], None] = ...) -> dict[str, float]:
        """Carry out a plan; return metrics: means over tokens, and numbers of `steps`, `skipped` steps and `tokens`.

        Calls `on_step` in the event loop after every step. Raises GateError, before any weight changes, if sampler and
        trainer disagree, and DivergedError if numbers are not finite.
        """

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Return each stream's log-probabilities and entropies of sampled tokens under the current weights."""

    async def save(self) -> Mapping[str, torch.Tensor]:
        """Return the optimiser's state on the CPU, by `PARAMETER.MOMENT`."""

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore the optimiser from `optimizer.safetensors` in the folder, and the rest from `state`."""

    def state(self) -> dict[str, Any]:
        """Return the JSON state for a checkpoint: `steps` taken, and the regularisers' `memory`."""

    async def weights(self) -> Weights:
        """Return the current weights, in a form that an engine can serve."""

    async def close(self) -> None:
        """Release all resources; no call may follow."""


MakeTrainer = Callable[[Policy, UpdateSpec, bool], Trainer]
"""(policy with its initial weights, update settings, whether to compute in bfloat16) -> trainer."""
