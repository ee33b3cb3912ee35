"""The trainer of one policy on many ranks, as the driver sees it: plans and state are here, all else is theirs."""

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
    """A `Trainer` whose weights and optimiser are on all ranks."""

    def __init__(self, ranks: Ranks, policy: Policy, rule: UpdateSpec, bf16: bool) -> None:
        """The policy's weights move to the ranks; it keeps none here. Called beside the event loop."""
        self.name, self._ranks = policy.name, ranks
        self._planner = Planner(policy.name, rule, costs(policy.model, bf16))
        weights = _sent(policy)
        self._form = replace(weights, arrays={})
        """What the weights are, without their numbers."""
        self._state: dict[str, Any] = {"steps": 0, "memory": {}}
        half = any(value.dtype == torch.bfloat16 for value in trainable(policy.model).values())
        learner = ray.put(Learner(policy.name, weights, half, rule, bf16))
        policy.model = None
        if policy.base:
            policy.base = replace(policy.base, model=None, base=None)
        asyncio.run(ranks.ask(f"policy '{policy.name}', being sent", "add", learner))

    def plan(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> Plan:
        """Plan an update from samples for all ranks, given the steps so far."""
        return self._planner.update(samples, rng, clock, self._state["steps"], len(self._ranks))

    def plan_imitation(self, samples: Sequence[Sample], spec: ImitateSpec, rng: np.random.Generator) -> Plan:
        """Plan an imitation of the samples for all ranks."""
        return self._planner.imitation(samples, spec, rng, len(self._ranks))

    async def update(self, plan: Plan, stepped: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Carry a plan out on all ranks; metrics over all of them. `stepped` is called afterwards, for every step."""
        given = await asyncio.to_thread(ray.put, plan)
        answers = await self._ranks.ask(f"{plan.where}, update", "update", self.name, given)
        metrics: dict[str, float] = answers[0][0]
        self._state = answers[0][1]
        for _ in plan.steps:
            stepped()
        return metrics

    async def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Log-probabilities and entropies of the sampled tokens under the current weights; each rank scores some."""
        shares = self._planner.scoring(streams, len(self._ranks))
        found: dict[int, StreamScores] = {}
        for scores in await self._ask("scoring", "score", streams, temperatures, shares):
            found |= scores
        nothing = StreamScores(np.zeros(0, np.float32), np.zeros(0, np.float32))
        return [found.get(i, nothing) for i in range(len(streams))]

    async def save(self) -> dict[str, torch.Tensor]:
        """State of the optimiser by parameter name, put together from all ranks."""
        moments, *_ = await self._ask("saving", "save")
        return {name: torch.tensor(array) for name, array in moments.items()}

    async def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Restore the optimiser's state, whatever number of ranks wrote it."""
        moments = await asyncio.to_thread(lambda: ray.put(load_file(folder / "optimizer.safetensors")))
        self._state, *_ = await self._ask("loading", "load", moments, dict(state))

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON."""
        return self._state

    async def weights(self) -> ArrayWeights | AdapterArrays:
        """Whole arrays of what is trained, read-only where Ray shares them."""
        arrays, *_ = await self._ask("gathering its weights", "weights")
        return replace(self._form, arrays=arrays)

    async def close(self) -> None:
        """Have the ranks drop the policy; they end by `Ranks.close`."""
        if not self._ranks.lost:
            await self._ask("closing", "drop")

    async def _ask(self, doing: str, what: str, *given: Any) -> list[Any]:
        return await self._ranks.ask(f"policy '{self.name}', {doing}", what, self.name, *given)


def _sent(policy: Policy) -> ArrayWeights | AdapterArrays:
    """A policy's weights as arrays; the folder they began as has the same form, and stays where it is."""
    weights = as_arrays(ModuleWeights(policy.model, policy.base))
    assert isinstance(weights, ArrayWeights | AdapterArrays)
    return replace(weights, folder=policy.source) if isinstance(weights, ArrayWeights) else weights
