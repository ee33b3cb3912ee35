"""Ray actor of one engine process: receives weights and forwards requests to the engine."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from agents.adapter import attach_adapter
from agents.bf16 import convert_linears
from agents.computing import compute
from agents.engines.base import Completion, ReceivingEngine, Request
from agents.engines.make import make_engine
from agents.engines.spec import EngineSpec
from agents.errors import EngineError
from agents.policy import AdapterOnBase, Bases, load_module
from agents.precision import Precision
from agents.published import FolderWeights, Weights
from agents.stream import Stream
from arena.scale.layout import Layout, Slice
from arena.scale.transfer import (
    Link,
    TransferFailed,
    await_sender,
    gpu_of_this_process,
    receive_slices,
    receive_tensors,
)

Answer = tuple[list[Any], dict[str, float]]
"""(results of a call, the engine's statistics after it)."""


class Location(NamedTuple):
    """Where an engine runs: node, network address and GPU ("" for none)."""

    node: str
    """Ray's id of the node."""
    address: str
    gpu: str


class IncomingWeights(NamedTuple):
    """Description of a policy's weights that an engine receives by broadcast."""

    folder: Path
    """Folder of a model of the same shape; for an adapter, of its base model."""
    learned: Layout
    """Layout of the broadcast weights; all others come from the folder."""
    scale: float | None = None
    """Scale of an adapter; None for a full model."""
    base_name: str = ""
    """Name of an adapter's base."""


class ExpectedWeights(NamedTuple):
    """Layout in which an engine will receive a broadcast, and its number of receiving processes."""

    layout: Layout
    """Layout of the broadcast weights in the engine's dtypes."""
    members: int = 1
    """Number of the engine's processes that take part in the broadcast."""


class _ArrivingWeights:
    """Weights that are received when the engine first unwraps them, which it does between two batches."""

    gather: Callable[[], AbstractContextManager[Any]] = staticmethod(nullcontext)

    def __init__(self, arrive: Callable[[], Any]) -> None:
        self._arrive, self._arrived = arrive, None

    def unwrap(self) -> Any:
        """Return the module or adapter. The first call waits for the broadcast."""
        if self._arrived is None:
            self._arrived = self._arrive()
        return self._arrived


class EngineHost:
    """Ray actor that runs an engine in its process. All methods are coroutines, so it answers pings at any time."""

    def __init__(self, spec: EngineSpec, precision: Precision, threads: int, gpus: float) -> None:
        """Make the engine. `gpus` is the number of GPUs reserved for it; below 1, it shares a GPU with a rank."""
        self.precision, self._threads, self._releases = precision, threads, gpus < 1
        self._engine = make_engine(spec, precision, max(1, int(gpus)))
        self._receiving = cast(ReceivingEngine, self._engine) if self._engine.capabilities.receives else None
        self._bases = Bases(precision)
        self._modules: dict[str, Any] = {}
        """Full models of policies, whose weights broadcasts replace in place."""
        self._incoming: dict[str, tuple[IncomingWeights, ExpectedWeights]] = {}
        self._incomplete: set[str] = set()
        """Policies whose last broadcast has not succeeded, so that their weights may be of two versions."""

    async def open(self) -> None:
        """Set torch's number of threads and start the engine."""
        await compute(torch.set_num_threads, self._threads)
        await self._engine.open()

    async def close(self) -> None:
        """Stop the engine."""
        await self._engine.close()

    async def ping(self) -> tuple[str, int]:
        """Return the Ray id of this process's node and the process id."""
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    async def locate(self) -> Location:
        """Return the node, address and GPU of this process."""
        import ray

        node, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        return Location(node, address, await compute(gpu_of_this_process))

    async def publish(self, policy: str, version: int, weights: FolderWeights) -> None:
        """Publish a version of a policy in the engine, from a folder."""
        await self._engine.publish(policy, version, weights)

    async def prepare(self, policy: str, incoming: IncomingWeights) -> ExpectedWeights:
        """Prepare to receive a policy's weights by broadcast, and return the layout to send. Raises TransferFailed."""
        layout, members = incoming.learned, 0
        if incoming.scale is None and self._receiving:
            self._incomplete.add(policy)
            try:
                names = {spec.name for spec in layout.specs}
                members = await self._receiving.expect(policy, incoming.folder, names)
            except EngineError as error:
                raise TransferFailed(str(error)) from None
        if members:
            layout = layout.of_dtype(torch.bfloat16 if self.precision.uses_bf16_products else torch.float32)
        elif incoming.scale is None:
            if policy not in self._modules:
                self._modules[policy] = await compute(self._load, incoming.folder)
            parameters = dict(self._modules[policy].named_parameters())
            layout = Layout.of({spec.name: parameters[spec.name] for spec in layout.specs})
        self._incoming[policy] = incoming, ExpectedWeights(layout, members or 1)
        return self._incoming[policy][1]

    def _load(self, folder: Path) -> Any:
        module = load_module(folder, True, self.precision.has_bf16_weights)
        return convert_linears(module) if self.precision.uses_bf16_products else module

    async def receive(self, policy: str, version: int, link: Link) -> None:
        """Receive a version of a prepared policy by broadcast and publish it in the engine.

        Raises TransferFailed. Full weights may then be of two versions, and are not served until a later broadcast
        succeeds.
        """
        store = await asyncio.to_thread(await_sender, link)
        incoming, (layout, _) = self._incoming[policy]
        if incoming.scale is None and policy not in self._modules:
            await self._receive_in_processes(policy, version, layout, link)
        else:
            received = _ArrivingWeights(
                lambda: self._receive_parts(policy, incoming, receive_slices(link, store, layout))
            )
            await self._engine.publish(policy, version, cast(Weights, received))
        self._incomplete.discard(policy)

    async def _receive_in_processes(self, policy: str, version: int, layout: Layout, link: Link) -> None:
        """Make the engine's own processes receive a full model's weights in place."""
        assert self._receiving
        arguments = {"specs": layout.to_plain(), "link": asdict(link)}
        try:
            await self._receiving.receive(
                policy, version, f"{receive_tensors.__module__}:{receive_tensors.__name__}", arguments
            )
        except EngineError as error:
            raise TransferFailed(str(error)) from None

    def _receive_parts(
        self, policy: str, incoming: IncomingWeights, parts: Iterable[tuple[Slice, torch.Tensor]]
    ) -> Any:
        """Receive slices of tensors. Returns the full model, filled in place, or the adapter on its base."""
        if incoming.scale is None:
            self._incomplete.add(policy)
            tensors = {name: parameter.data for name, parameter in self._modules[policy].named_parameters()}
        else:
            tensors = {spec.name: torch.empty(spec.shape, dtype=spec.dtype) for spec in incoming.learned.specs}
        for part, values in parts:
            tensors[part.spec.name].view(-1)[part.start : part.stop] = values
        if incoming.scale is None:
            return self._modules[policy]
        base = self._bases(incoming.folder)
        return AdapterOnBase(attach_adapter(base, tensors, incoming.scale), base, incoming.folder, incoming.base_name)

    def _require_intact(self, policies: set[str]) -> None:
        if incomplete := sorted(policies & self._incomplete):
            raise EngineError(f"scale: the weights of policy '{incomplete[0]}' are of two versions")

    async def generate(self, requests: Sequence[Request], dropped_keys: Sequence[str]) -> Answer:
        """Drop the caches of the streams `dropped_keys` and run the requests concurrently.

        Returns a completion or exception for each request, in order, and the engine's statistics.
        """
        self._require_intact({request.policy for request in requests})
        for key in dropped_keys:
            self._engine.forget(key)
        each = (self._engine.generate([request]) for request in requests)
        answers = await asyncio.gather(*each, return_exceptions=True)
        results: list[Completion | BaseException] = [
            one if isinstance(one, BaseException) else one[0] for one in answers
        ]
        return results, self._engine.figures()

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool
    ) -> Answer:
        """Return the log-probabilities of each stream's tokens under a policy, and the engine's statistics."""
        self._require_intact({policy})
        scored: list[np.ndarray] = await self._engine.score(policy, streams, temperatures, full_vocabulary)
        return scored, self._engine.figures()

    async def release(self, policy: str) -> None:
        """Free memory that the policy's next version fills again, if a rank shares the engine's GPU or machine."""
        if self._releases:
            await self._engine.release(policy)
            await compute(torch.cuda.empty_cache)

    async def retire(self, policy: str) -> None:
        """Remove the policy and its module."""
        await self._engine.retire(policy)
        self._modules.pop(policy, None)
        self._incoming.pop(policy, None)
        self._incomplete.discard(policy)
