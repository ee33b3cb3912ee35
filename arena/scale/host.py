"""An engine in a process of its own, as its Ray actor sees it: what arrives is unpacked, the engine does the rest."""

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
"""What was asked for, and the engine's figures afterwards."""


@dataclass(frozen=True)
class _Arrived:
    """Weights from another process, built when the engine takes them: between two batches, where it computes."""

    served: Callable[[], Any]
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext


class EngineHost:
    """The engine of one process; coroutines throughout, so that it answers while it computes."""

    def __init__(self, spec: EngineSpec, precision: Precision, threads: int, gpus: int) -> None:
        """`gpus`: over how many the weights are spread, where the engine can."""
        self.precision, self._threads = precision, threads
        self._engine = make_engine(spec, precision, gpus)
        self._bases = Bases(precision)
        self._modules: dict[str, Any] = {}

    async def open(self) -> None:
        """Start the engine."""
        await compute(torch.set_num_threads, self._threads)
        await self._engine.open()

    async def close(self) -> None:
        """Stop the engine."""
        await self._engine.close()

    async def ping(self) -> tuple[str, int]:
        """Tell which node and process this is."""
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Serve a version; arrays arrive read-only, and are copied into a module that stays."""
        await self._engine.publish(policy, version, self._unpacked(policy, weights))

    def _unpacked(self, policy: str, weights: Weights) -> Weights:
        if isinstance(weights, AdapterArrays):
            return cast(Weights, _Arrived(lambda: weights.on(self._bases(weights.folder))))
        if isinstance(weights, ArrayWeights):
            return cast(Weights, _Arrived(lambda: self._module(policy, weights)))
        assert isinstance(weights, FolderWeights), weights
        return weights

    def _module(self, policy: str, weights: ArrayWeights) -> Any:
        if policy not in self._modules:
            self._modules[policy] = load_module(weights.folder, True, self.precision.bf16_weights)
        with torch.no_grad():
            for name, parameter in self._modules[policy].named_parameters():
                parameter.copy_(torch.tensor(weights.arrays[name]))
        return self._modules[policy]

    async def generate(self, requests: Sequence[Request], forgotten: Sequence[str]) -> Answer:
        """A completion, or the error in its place, for each request; streams that have ended are forgotten first."""
        for key in forgotten:
            self._engine.forget(key)
        each = (self._engine.generate([request]) for request in requests)
        answers = await asyncio.gather(*each, return_exceptions=True)
        told: list[Completion | BaseException] = [one if isinstance(one, BaseException) else one[0] for one in answers]
        return told, self._engine.figures()

    async def score(self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float]) -> Answer:
        """Log-probabilities of each stream."""
        scored: list[np.ndarray] = await self._engine.score(policy, streams, temperatures)
        return scored, self._engine.figures()

    async def release(self, policy: str) -> None:
        """Free what the next version rebuilds."""
        await self._engine.release(policy)

    async def retire(self, policy: str) -> None:
        """Serve that name no more."""
        await self._engine.retire(policy)
        self._modules.pop(policy, None)
