"""Ray actor of one engine process: unpacks weights and forwards requests to the engine."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from agents.computing import compute
from agents.engines.base import Completion, Request
from agents.engines.make import make_engine
from agents.engines.spec import EngineSpec
from agents.policy import Bases, load_module
from agents.precision import Precision
from agents.published import AdapterArrays, ArrayWeights, FolderWeights, Weights
from agents.stream import Stream

Answer = tuple[list[Any], dict[str, float]]
"""Results, and the engine's figures afterwards."""


@dataclass(frozen=True)
class _LazyWeights:
    """Weights from another process, as a function that builds the module. The engine calls it between two batches."""

    served: Callable[[], Any]
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext


class EngineHost:
    """Ray actor that runs an engine in its process. All methods are coroutines, so pings are answered meanwhile."""

    def __init__(self, spec: EngineSpec, precision: Precision, threads: int, gpus: int) -> None:
        """Make the engine. `gpus` is the number of GPUs for one model, if the engine supports several."""
        self.precision, self._threads = precision, threads
        self._engine = make_engine(spec, precision, gpus)
        self._bases = Bases(precision)
        self._modules: dict[str, Any] = {}

    async def open(self) -> None:
        """Set the number of torch's threads and start the engine."""
        await compute(torch.set_num_threads, self._threads)
        await self._engine.open()

    async def close(self) -> None:
        """Stop the engine."""
        await self._engine.close()

    async def ping(self) -> tuple[str, int]:
        """Return the Ray id of this process's node and the process id."""
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Publish a version of a policy in the engine. Arrays are copied, because Ray shares them read-only."""
        await self._engine.publish(policy, version, self._unpacked(policy, weights))

    def _unpacked(self, policy: str, weights: Weights) -> Weights:
        if isinstance(weights, AdapterArrays):
            return cast(Weights, _LazyWeights(lambda: weights.on(self._bases(weights.folder))))
        if isinstance(weights, ArrayWeights):
            return cast(Weights, _LazyWeights(lambda: self._module(policy, weights)))
        assert isinstance(weights, FolderWeights), weights
        return weights

    def _module(self, policy: str, weights: ArrayWeights) -> Any:
        if policy not in self._modules:
            self._modules[policy] = load_module(weights.folder, True, self.precision.bf16_weights)
        with torch.no_grad():
            for name, parameter in self._modules[policy].named_parameters():
                if name in weights.arrays:  # parts that are not trained are the folder's
                    parameter.copy_(torch.tensor(weights.arrays[name]))
        return self._modules[policy]

    async def generate(self, requests: Sequence[Request], forgotten: Sequence[str]) -> Answer:
        """Drop the `forgotten` streams' caches and run the requests concurrently.

        Returns a completion or exception for each request, in order, and the engine's statistics.
        """
        for key in forgotten:
            self._engine.forget(key)
        each = (self._engine.generate([request]) for request in requests)
        answers = await asyncio.gather(*each, return_exceptions=True)
        results: list[Completion | BaseException] = [
            one if isinstance(one, BaseException) else one[0] for one in answers
        ]
        return results, self._engine.figures()

    async def score(self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], whole: bool) -> Answer:
        """Return the log-probabilities of each stream's tokens under a policy, and the engine's statistics."""
        scored: list[np.ndarray] = await self._engine.score(policy, streams, temperatures, whole)
        return scored, self._engine.figures()

    async def release(self, policy: str) -> None:
        """Free what the policy's next version rebuilds."""
        await self._engine.release(policy)

    async def retire(self, policy: str) -> None:
        """Remove the policy and its module."""
        await self._engine.retire(policy)
        self._modules.pop(policy, None)
