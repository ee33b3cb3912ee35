"""In-process engine: decodes with the trainer's own weights, all pending turns of all matches in one batch.

A request waits until the event loop is idle. Then all waiting requests are decoded together in the computing thread;
requests that arrive meanwhile wait for the next batch. The composition of batches thus depends on the matches and not
on the clock, so that a CPU run is bit-reproducible.
"""

import asyncio
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from agents.adapter import load_adapter
from agents.adapter_config import is_adapter, read_adapter
from agents.bf16 import convert_to_bf16, refresh_copy
from agents.computing import compute
from agents.costs import estimate_costs
from agents.engines.base import Capabilities, Completion, EngineSettings, Request
from agents.engines.decoding import Decoder
from agents.engines.graphs import BufferPool, GraphCache, can_record
from agents.engines.kv import KVStore
from agents.engines.multi_adapter import MultiAdapterModel
from agents.engines.served import ServedPolicy
from agents.heap import trim_holes
from agents.policy import AdapterOnBase, load_frozen
from agents.precision import Precision
from agents.published import ModuleWeights, Weights
from agents.scoring import StreamScorer, score_distributions, score_streams
from agents.stream import Stream
from agents.weights import resolve

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


MAX_PREFIXES = 64
"""Maximum cached prefixes per policy; every new context is compared with all of them."""
_PendingRequest = tuple[Request, asyncio.Future[Completion | Exception]]


class InProcessEngine:
    """Inference engine for transformers models in this process: modules under training, folders and adapters."""

    capabilities = Capabilities(has_vision=True, serves_adapters=True, serves_several=True, records_entropy=True)
    max_context = sys.maxsize

    def __init__(
        self,
        precision: Precision = Precision.FP32,
        max_batch: int = 256,
        cache_bytes: int = 2 << 30,
        entropy: bool = False,
    ) -> None:
        """Create the engine. `entropy`: whether completions report entropies.

        `max_batch`: maximum replies decoded at once; `cache_bytes`: memory for attention caches per policy.
        """
        self.precision, self.max_batch, self.cache_bytes, self.entropy = precision, max_batch, cache_bytes, entropy
        self._seconds = 0.0
        self._served: dict[str, ServedPolicy] = {}
        self._folders: dict[Path, MultiAdapterModel] = {}
        """Loaded models by folder, shared by all policies from that folder."""
        self._replays: WeakKeyDictionary[Any, GraphCache] = WeakKeyDictionary()
        """Recorded steps by computing model, if its steps can be recorded."""
        self._buffers = BufferPool()
        self._waiting: list[_PendingRequest] = []
        self._running = 0
        """Number of tasks in the computing thread; decoding waits for all of them."""
        self._dropped_keys: list[str] = []
        """Keys of finished streams, whose caches the computing thread will drop."""

    @classmethod
    def create(cls, settings: EngineSettings, precision: Precision, gpus: int) -> "InProcessEngine":
        """Create the engine from settings. It uses one GPU if there is one, whatever `gpus` says."""
        return cls(precision, settings.max_batch, settings.cache_mb << 20, settings.entropy)

    async def open(self) -> None:
        """Do nothing; the engine needs no start."""

    async def close(self) -> None:
        """Free all weights and caches."""
        await self._run(self._close)

    def _close(self) -> None:
        self._served.clear()
        self._replays.clear()
        self._buffers.clear()
        self._drop_unused()

    def figures(self) -> dict[str, float]:
        """Return `seconds`, the wall time of decoding and scoring."""
        return {"seconds": self._seconds}

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Serve this version of a policy: a folder's weights, or a module or adapter by reference.

        With bfloat16 products a module's linear layers are copied. Weights marked `copied` are copied once, and later
        versions overwrite the copy. Adapters share their base. Caches made with older weights are dropped.
        """
        await self._run(self._publish, policy, version, weights)

    def _publish(self, policy: str, version: int, weights: Weights) -> None:
        budget, before, module, bf16_copy, shared_model = self.cache_bytes, self._served.get(policy), None, None, None
        source, copied = weights.unwrap(), isinstance(weights, ModuleWeights) and weights.copied
        if isinstance(source, Path):
            shared_model = self._load_folder(policy, source)
        elif isinstance(source, AdapterOnBase):
            shared_model = self._get_model(source.folder, source.base)
            shared_model.add_adapter(policy, source.model, copied)
        else:
            module = _copy_module(source, before and before.weights) if copied else source
            if before and before.weights is module and before.bf16_copy is not None:
                bf16_copy = before.bf16_copy
                refresh_copy(bf16_copy, module)
            elif self.precision.uses_bf16_products:
                # only a module that does not learn may be moved
                bf16_copy = convert_to_bf16(module, may_move=not isinstance(weights, ModuleWeights))
        self._served[policy] = ServedPolicy(
            weights=module,
            bf16_copy=bf16_copy,
            shared_model=shared_model,
            version=version,
            caches=KVStore(budget),
            prefixes=KVStore(budget // 8, MAX_PREFIXES),
        )
        self._drop_unused()
        trim_holes()  # memory that the update freed, because play needs buffers of other sizes

    def _load_folder(self, policy: str, folder: Path) -> MultiAdapterModel:
        """Return the shared model of a folder; of an adapter's folder, that of its base with the adapter added."""
        if not is_adapter(folder):
            shared_model = self._get_model(folder)
            shared_model.remove_adapter(policy)
            return shared_model
        shared_model = self._get_model(resolve(read_adapter(folder).base))
        shared_model.add_adapter(policy, load_adapter(shared_model.base, folder))
        return shared_model

    def _get_model(self, folder: Path, base: Any = None) -> MultiAdapterModel:
        """Return the model of a folder, loaded once for all policies, or made from `base` if given."""
        if folder not in self._folders:
            bf16 = self.precision.uses_bf16_products
            model = convert_to_bf16(base) if bf16 and base is not None else base
            model = load_frozen(folder, self.precision, packed=True) if model is None else model
            self._folders[folder] = MultiAdapterModel(model, bf16)
        return self._folders[folder]

    def _drop_unused(self) -> None:
        """Drop models that no served policy uses."""
        used_ids = {id(served.shared_model) for served in self._served.values()}
        self._folders = {folder: model for folder, model in self._folders.items() if id(model) in used_ids}

    async def release(self, policy: str) -> None:
        """Free a policy's bfloat16 copy and attention caches before an update; it is still served."""
        await self._run(self._release, policy)

    def _release(self, policy: str) -> None:
        served = self._served[policy]
        self._replays.pop(served.model, None)
        self._buffers.clear()
        self._served[policy] = replace(served, bf16_copy=None, caches=KVStore(0), prefixes=KVStore(0))
        trim_holes()  # memory that play freed, because the update needs buffers of other sizes

    async def retire(self, policy: str) -> None:
        """Free a policy's weights and caches, if any."""
        await self._run(self._retire, policy)

    def _retire(self, policy: str) -> None:
        served = self._served.pop(policy, None)
        if served and served.shared_model:
            served.shared_model.remove_adapter(policy)
        self._drop_unused()

    def forget(self, key: str) -> None:
        """Drop the attention cache of a finished stream before the next computation."""
        self._dropped_keys.append(key)

    def _forget_streams(self) -> None:
        keys, self._dropped_keys = self._dropped_keys, []
        for key in keys:
            for served in self._served.values():
                served.caches.drop(key)

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        """Compute the log-probabilities of streams under the served weights: one float32 per sampled token.

        With `full_vocabulary` there is one row per sampled token, with a float32 for each id of the vocabulary.
        """
        return await self._run(self._score, policy, streams, temperatures, full_vocabulary)

    def _score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool
    ) -> list[np.ndarray]:
        served = self._served[policy]
        if served.shared_model:
            served.shared_model.route([policy])
        with self._measure_time():
            bf16 = self.precision.uses_bf16_products
            costs = estimate_costs(served.model, bf16)
            score = score_distributions if full_vocabulary else score_streams
            return score(StreamScorer(served.model, bf16), streams, temperatures, costs=costs)

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a reply for each request, decoded together with all waiting requests; return them in order.

        Raises KeyError for a policy without published weights, and the errors of `Request.check`.
        """
        for request in requests:
            if request.policy not in self._served:
                raise KeyError(f"no weights are published for policy '{request.policy}'")
            served = self._served[request.policy]
            request.check(served.vocabulary, served.positions)
        loop = asyncio.get_running_loop()
        pending: list[_PendingRequest] = [(request, loop.create_future()) for request in requests]
        self._waiting += pending
        self._schedule_decoding()
        completions = []
        for answer in [await future for _, future in pending]:
            if isinstance(answer, Exception):
                raise answer
            completions.append(answer)
        return completions

    async def _run(
        self, work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run work in the computing thread, after dropping caches of finished streams; then decode waiting requests."""
        self._running += 1
        try:
            return await compute(self._forget_and_run, lambda: work(*args, **kwargs))
        finally:
            self._running -= 1
            self._schedule_decoding()

    def _forget_and_run(self, work: Callable[[], Result]) -> Result:
        self._forget_streams()
        return work()

    def _schedule_decoding(self) -> None:
        """Decode the waiting requests once a few passes of the event loop have added none."""
        if self._waiting and not self._running:
            asyncio.get_running_loop().call_soon(self._decode_when_idle, len(self._waiting), 2)

    def _decode_when_idle(self, count: int, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        if count != len(self._waiting) or self._running:
            return  # a later request, or the end of the running work, has scheduled decoding itself
        if rounds:
            loop.call_soon(self._decode_when_idle, count, rounds - 1)
            return
        waiting, self._waiting = self._waiting, []
        self._decoding = loop.create_task(self._decode_batches(self._group_batches(waiting)))

    def _group_batches(self, waiting: Sequence[_PendingRequest]) -> list[list[_PendingRequest]]:
        """Group waiting requests into batches of one model, up to the maximum size."""
        groups: dict[tuple[int, str], list[_PendingRequest]] = {}
        for request, future in sorted(waiting, key=lambda item: item[0].policy):  # makes a policy's rows adjacent
            served = self._served.get(request.policy)  # None if it was retired meanwhile: decoding then fails
            alone = request.policy if served and served.shared_model and not served.shared_model.can_mix else ""
            groups.setdefault((id(served and served.model), alone), []).append((request, future))
        size = self.max_batch
        return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]

    async def _decode_batches(self, chunks: Sequence[list[_PendingRequest]]) -> None:
        """Decode all batches. Results are delivered together, so that timing does not decide who asks next."""
        answers = await self._run(lambda: [self._try_decoding([request for request, _ in chunk]) for chunk in chunks])
        for chunk, answer in zip(chunks, answers, strict=True):
            for (_, future), result in zip(chunk, answer, strict=True):
                if not future.done():
                    future.set_result(result)

    def _try_decoding(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Decode a batch; if it fails, decode each half of it, so that only the failing requests get the error.

        Requests of a policy are adjacent, so that broken weights of one policy cannot spoil replies of another.
        """
        try:
            return [*self._decode(requests)]
        except Exception as error:  # noqa: BLE001 passed on, or the waiting tasks would wait forever
            if len(requests) == 1:
                return [error]
        half = len(requests) // 2  # outside the except block, whose traceback keeps the batch's buffers alive
        return self._try_decoding(requests[:half]) + self._try_decoding(requests[half:])

    @contextmanager
    def _measure_time(self) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self._seconds += perf_counter() - start

    def _decode(self, requests: Sequence[Request]) -> list[Completion]:
        """Return a completion for each request, decoded as one batch by one model. Adds the time to `seconds`."""
        served = {request.policy: self._served[request.policy] for request in requests}
        model = next(iter(served.values())).model
        graphs = self._replays.setdefault(model, GraphCache(self._buffers)) if can_record(model) else None
        with self._measure_time():
            completions = Decoder(served, self.precision.uses_bf16_products, self.entropy, graphs).decode(requests)
            trim_holes()
            return completions


def _copy_module(module: Any, before: Any) -> Any:
    """Copy a module's current weights into `before`, the copy of the previous version, or into a new copy if None."""
    if before is None and not any(hasattr(parameter, "ds_id") for parameter in module.parameters()):
        return copy.deepcopy(module).requires_grad_(False).eval()
    if before is None:  # ZeRO-3 partitions the module, and a deep copy would share its hooks
        with torch.random.fork_rng():  # the new module draws weights, which are overwritten
            before = type(module)(module.config)
        before = before.to(module.device).requires_grad_(False).eval()
        for old, new in zip(before.parameters(), module.parameters(), strict=True):
            old.data = old.data.to(new.dtype)  # buffers stay float32
    for old, new in zip(before.state_dict().values(), module.state_dict().values(), strict=True):
        old.copy_(new)
    return before
