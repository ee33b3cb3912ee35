"""Trainer of one policy on several ranks: the driver's side, with plans and state. Weights are on the ranks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from safetensors.numpy import load_file

from agents.costs import costs
from agents.policy import Policy, trainable
from agents.published import AdapterArrays, ArrayWeights, ModuleWeights, as_arrays
from agents.scoring import StreamScores
from agents.stream import Stream
from arena.learn.plan import Plan, Planner
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec, UpdateSpec
from arena.parts.schedules import Clock
from arena.scale.rank import Learner
from arena.scale.ranks import Ranks


class ScaledTrainer:
    """Trainer of one policy whose weights and optimiser are on all ranks; same interface as `Trainer`."""

    def __init__(self, ranks: Ranks, policy: Policy, rule: UpdateSpec, bf16: bool) -> None:
        """Move the policy's weights to the ranks; `policy` loses its model. Must not run in the event loop's thread."""
        self.name, self._ranks = policy.name, ranks
        self._planner = Planner(policy.name, rule, costs(policy.model, bf16))
        weights = _sent(policy)
        self._form = replace(weights, arrays={})
        """Weights without their arrays: folder and form."""
        self._state: dict[str, Any] = {"steps": 0, "memory": {}}
        half = any(value.dtype == torch.bfloat16 for value in trainable(policy.model).values())
        learner = ray.put(Learner(policy.name, weights, half, rule, bf16))
        policy.model = None
        if policy.base:
            policy.base = replace(policy.base, model=None, base=None)
        asyncio.run(ranks.ask(f"policy '{policy.name}', being sent", "add", learner))

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        """Return the plan of an update on these samples, divided among all ranks."""
        return self._planner.update(samples, rng, clock, self._state["steps"], len(self._ranks))

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Return the plan of supervised learning on these samples, divided among all ranks."""
        return self._planner.imitation(samples, spec, rng, len(self._ranks))

    async def update(self, plan: Plan, stepped: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Run a plan on all ranks and return metrics over all of them. Calls `stepped` once per step, at the end."""
        given = await asyncio.to_thread(ray.put, plan)
        answers = await self._ranks.ask(f"{plan.where}, update", "update", self.name, given)
        metrics: dict[str, float] = answers[0][0]
        self._state = answers[0][1]
        for _ in plan.steps:
            stepped()
        return metrics

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Return log-probabilities and entropies of each stream's sampled tokens, in order. Ranks share the work."""
        shares = self._planner.scoring(streams, len(self._ranks))
        found: dict[int, StreamScores] = {}
        for scores in await self._ask("scoring", "score", streams, temperatures, shares):
            found |= scores
        nothing = StreamScores(np.zeros(0, np.float32), np.zeros(0, np.float32))
        return [found.get(i, nothing) for i in range(len(streams))]

    async def save(self) -> dict[str, torch.Tensor]:
        """Return the optimiser's moments as tensors by parameter name, gathered from all ranks."""
        moments, *_ = await self._ask("saving", "save")
        return {name: torch.tensor(array) for name, array in moments.items()}

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore the optimiser from a checkpoint folder, which any number of ranks may have written, and the state."""
        moments = await asyncio.to_thread(lambda: ray.put(load_file(folder / "optimizer.safetensors")))
        self._state, *_ = await self._ask("loading", "load", moments, dict(state))

    def state(self) -> dict[str, Any]:
        """Return the trainer's state (steps and memory) for a checkpoint, as JSON-able values."""
        return self._state

    async def weights(self) -> ArrayWeights | AdapterArrays:
        """Return the full trained parameters as arrays, which Ray may share read-only."""
        arrays, *_ = await self._ask("gathering its weights", "weights")
        return replace(self._form, arrays=arrays)

    async def close(self) -> None:
        """Drop the policy from the ranks, unless they are lost. The ranks themselves keep running."""
        if not self._ranks.lost:
            await self._ask("closing", "drop")

    async def _ask(self, purpose: str, method: str, *given: Any) -> list[Any]:
        return await self._ranks.ask(f"policy '{self.name}', {purpose}", method, self.name, *given)


def _sent(policy: Policy) -> ArrayWeights | AdapterArrays:
    """Return a policy's weights as arrays, with the folder of its source, whose model has the same form.

    Parts that are not trained are left out.
    """
    weights = as_arrays(ModuleWeights(policy.model, policy.base))
    assert isinstance(weights, ArrayWeights | AdapterArrays)
    if not isinstance(weights, ArrayWeights):
        return weights
    own = trainable(policy.model)
    arrays = {name: array for name, array in weights.arrays.items() if name in own}
    return replace(weights, folder=policy.source, arrays=arrays)
