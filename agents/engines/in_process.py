"""The in-process engine: the trainer's own weights, all pending turns of all matches in one batch.

A request waits until the event loop has nothing else to run; then everything that is waiting is decoded at
once, in the computing thread, and what asks meanwhile waits for the next time. Which turns share a batch thus depends
on the matches alone and never on the clock, so that a run on the CPU can be repeated bit by bit.
"""

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import torch

from agents.adapter import load_adapter
from agents.adapter_config import is_adapter, read_adapter
from agents.computing import compute
from agents.costs import costs, start_cost
from agents.engines.base import Completion, Request
from agents.engines.kv import KV, BatchKV, KVStore, empty_kv
from agents.engines.lanes import Lanes
from agents.engines.step import step, steps
from agents.errors import WeightsError
from agents.half import half, refresh
from agents.packing import common_prefix, families
from agents.policy import OnBase, load_module
from agents.precision import Precision
from agents.published import ModuleWeights, Weights
from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from agents.weights import resolve

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass
class _Served:
    weights: Any
    """The module that was published; None where it lies in a folder or is an adapter."""
    halved: Any
    """With bfloat16 what `half` made of it, as long as it is played."""
    lanes: Lanes | None
    """The model that it shares with others: those of the same folder, and adapters on it."""
    version: int
    caches: KVStore
    prefixes: KVStore

    @property
    def model(self) -> Any:
        """The module that computes."""
        if self.lanes is not None:
            return self.lanes.model
        return self.weights if self.halved is None else self.halved


@dataclass
class _Row:
    """One request while it is being decoded."""

    request: Request
    served: _Served
    past: KV
    draws: np.ndarray
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropy: list[float] | None = None
    """Entropy before each id, where it is measured."""
    finish: str = ""

    def take(self, token: int, logprob: float) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in self.request.stop_ids:
            self.finish = "stop"
        elif len(self.ids) == self.request.max_tokens:
            self.finish = "length"

    def completion(self) -> Completion:
        """Return the reply as it was sampled."""
        finish: Literal["stop", "length"] = "stop" if self.finish == "stop" else "length"
        entropy = None if self.entropy is None else tuple(self.entropy)
        return Completion(tuple(self.ids), tuple(self.logprobs), finish, self.served.version, entropy)


_Asked = tuple[Request, asyncio.Future[Completion]]


class InProcessEngine:
    """Serves transformers models that live in this process: those that are trained there, and folders."""

    def __init__(
        self,
        precision: Precision = Precision.FP32,
        max_batch: int = 256,
        cache_bytes: int = 2 << 30,
        entropy: bool = False,
    ) -> None:
        """`entropy`: whether completions tell it."""
        self.precision, self.max_batch, self.cache_bytes, self.entropy = precision, max_batch, cache_bytes, entropy
        self._seconds = 0.0
        self._served: dict[str, _Served] = {}
        self._folders: dict[Path, Lanes] = {}
        """Models by the folder that they come from, each for all who are served from there."""
        self._waiting: list[_Asked] = []
        self._at_work = 0
        """Number of tasks under way in the computing thread: nothing else is decoded before they are done."""
        self._forgotten: list[str] = []
        """Keys of streams that have ended; their caches go when the computing thread comes by."""

    async def open(self) -> None:
        """Do nothing: nothing has to be started."""

    async def close(self) -> None:
        """Release all weights and caches."""
        await self._do(self._close)

    def _close(self) -> None:
        self._served.clear()
        self._drop_unused()

    def figures(self) -> dict[str, float]:
        """`seconds`: wall time spent in decoding and scoring so far."""
        return {"seconds": self._seconds}

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Serve a folder's weights, or a module by reference, but with bfloat16 its linear layers, which are copied.

        Of an adapter, a folder's or one that is trained, only the low-rank matrices are its own. A module or adapter
        that is to be `copied` is so once, and later versions are written into that copy.
        """
        await self._do(self._publish, policy, version, weights)

    def _publish(self, policy: str, version: int, weights: Weights) -> None:
        budget, before, module, halved, lanes = self.cache_bytes, self._served.get(policy), None, None, None
        served, copied = weights.served(), isinstance(weights, ModuleWeights) and weights.copied
        if isinstance(served, Path):
            lanes = self._from_folder(policy, served)
        elif isinstance(served, OnBase):
            lanes = self._shared(served.folder, served.base)
            lanes.put(policy, served.model, copied)
        else:
            module = _copied(served, before and before.weights) if copied else served
            if before and before.weights is module and before.halved is not None:
                halved = before.halved
                refresh(halved, module)
            elif self.precision.bf16_products:
                halved = half(module)
        self._served[policy] = _Served(module, halved, lanes, version, KVStore(budget), KVStore(budget // 8))
        self._drop_unused()

    def _from_folder(self, policy: str, folder: Path) -> Lanes:
        """The folder's model, or its base with its adapter."""
        if not is_adapter(folder):
            lanes = self._shared(folder)
            lanes.drop(policy)
            return lanes
        lanes = self._shared(resolve(read_adapter(folder).base))
        lanes.put(policy, load_adapter(lanes.base, folder))
        return lanes

    def _shared(self, folder: Path, base: Any = None) -> Lanes:
        """A folder's model, loaded once for all who are served from there, unless it is given."""
        if folder not in self._folders:
            model = load_module(folder, frozen=True, bf16_weights=self.precision.bf16_weights) if base is None else base
            bf16 = self.precision.bf16_products
            self._folders[folder] = Lanes(half(model) if bf16 else model, bf16)
        return self._folders[folder]

    def _drop_unused(self) -> None:
        """Drop models that no served policy uses any more."""
        used = {id(served.lanes) for served in self._served.values()}
        self._folders = {folder: lanes for folder, lanes in self._folders.items() if id(lanes) in used}

    async def release(self, policy: str) -> None:
        """Free the memory of a policy's copies and caches for the coming update; it is still served."""
        await self._do(self._release, policy)

    def _release(self, policy: str) -> None:
        served = self._served[policy]
        self._served[policy] = replace(served, halved=None, caches=KVStore(0), prefixes=KVStore(0))

    async def retire(self, policy: str) -> None:
        """Release a policy's weights and caches; nothing happens where there are none."""
        await self._do(self._retire, policy)

    def _retire(self, policy: str) -> None:
        served = self._served.pop(policy, None)
        if served and served.lanes:
            served.lanes.drop(policy)
        self._drop_unused()

    def forget(self, key: str) -> None:
        """Drop the attention cache of a stream that has ended, before anything else is computed."""
        self._forgotten.append(key)

    def _forget(self) -> None:
        keys, self._forgotten = self._forgotten, []
        for key in keys:
            for served in self._served.values():
                served.caches.drop(key)

    async def score(self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
        """Log-probabilities of the sampled tokens under the served weights."""
        return await self._do(self._score, policy, streams, temperatures)

    def _score(self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
        served = self._served[policy]
        if served.lanes:
            served.lanes.route([policy])
        with self._timed():
            bf16 = self.precision.bf16_products
            own = costs(served.model, bf16)
            return score_streams(StreamScorer(served.model, bf16), streams, temperatures, costs=own)

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion per request, together with whatever else is waiting."""
        loop = asyncio.get_running_loop()
        futures = []
        for request in requests:
            if request.policy not in self._served:
                raise KeyError(f"no weights are published for policy '{request.policy}'")
            futures.append(loop.create_future())
            self._waiting.append((request, futures[-1]))
        self._watch()
        return [await future for future in futures]

    async def _do(self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """Run work in the computing thread; requests that wait to be decoded wait for its end."""
        self._at_work += 1
        try:
            return await compute(self._after_forgetting, lambda: work(*given, **named))
        finally:
            self._at_work -= 1
            self._watch()

    def _after_forgetting(self, work: Callable[[], Result]) -> Result:
        self._forget()
        return work()

    def _watch(self) -> None:
        """Decode what is waiting once a few passes of the event loop have brought no further request."""
        if self._waiting and not self._at_work:
            asyncio.get_running_loop().call_soon(self._when_quiet, len(self._waiting), 2)

    def _when_quiet(self, count: int, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        if count != len(self._waiting) or self._at_work:
            return  # a later request has its own watch, or the batch is gone; and the end of work has one
        if rounds:
            loop.call_soon(self._when_quiet, count, rounds - 1)
            return
        waiting, self._waiting = self._waiting, []
        self._decoding = loop.create_task(self._answer(self._chunks(waiting)))

    def _chunks(self, waiting: Sequence[_Asked]) -> list[list[_Asked]]:
        """Group waiting requests into batches: of one model, up to the maximum size."""
        groups: dict[tuple[int, str], list[_Asked]] = {}
        for request, future in sorted(waiting, key=lambda one: one[0].policy):  # stable: a policy's rows lie together
            served = self._served.get(request.policy)  # None where it was retired meanwhile: decoding tells who waits
            alone = request.policy if served and served.lanes and not served.lanes.mixes else ""
            groups.setdefault((id(served and served.model), alone), []).append((request, future))
        size = self.max_batch
        return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]

    async def _answer(self, chunks: Sequence[list[_Asked]]) -> None:
        """Decode them all; results go out afterwards, so that timing does not decide who asks for more."""
        answers = await self._do(lambda: [self._tried([request for request, _ in chunk]) for chunk in chunks])
        for chunk, answer in zip(chunks, answers, strict=True):
            for i, (_, future) in enumerate(chunk):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer[i])

    def _tried(self, requests: Sequence[Request]) -> list[Completion] | Exception:
        try:
            return self._decode(requests)
        except Exception as error:  # noqa: BLE001 handed on: the waiting tasks would wait forever
            return error

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self._seconds += perf_counter() - start

    def _decode(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a completion for each request, as one batch; one model computes for all of them."""
        model = self._served[requests[0].policy].model
        device = next(model.parameters()).device
        numbers = torch.autocast(device.type, torch.bfloat16, enabled=self.precision.bf16_products)
        with self._timed(), torch.no_grad(), numbers:
            rows = self._rows(requests, device)
            self._sample_all(rows, device)
        return [row.completion() for row in rows]

    def _rows(self, requests: Sequence[Request], device: torch.device) -> list[_Row]:
        """Pair every request with the longest cache there is; what a policy's new streams share is computed once."""
        served = [self._served[r.policy] for r in requests]
        pasts = [own.caches.longest_prefix(r.key, r.ids) for own, r in zip(served, requests, strict=True)]
        for policy in dict.fromkeys(r.policy for r in requests):
            new = {i: r.ids for i, r in enumerate(requests) if r.policy == policy and pasts[i] is None}
            for fresh in families(new, start_cost(self._served[policy].model)):
                prefix = self._prefix(policy, [requests[i].ids for i in fresh], device)
                for i in fresh:
                    pasts[i] = prefix
        return [
            _Row(
                r,
                own,
                past,
                np.random.Generator(np.random.PCG64(r.seed)).random(r.max_tokens),
                entropy=[] if self.entropy or r.entropy else None,
            )
            for r, own, past in zip(requests, served, pasts, strict=True)
            if past is not None
        ]

    def _prefix(self, policy: str, contexts: list[tuple[int, ...]], device: torch.device) -> KV:
        """The cache of what these contexts have in common, at most all but the last token of any."""
        served = self._served[policy]
        ids = common_prefix(contexts)
        ids = ids[: min(len(ids), min(map(len, contexts)) - 1)]
        dtype = torch.bfloat16 if self.precision.bf16_products else next(served.model.parameters()).dtype
        nothing = empty_kv(served.model.config, dtype, device)
        if not ids:
            return nothing
        key = repr(ids)
        cached = served.prefixes.longest_prefix(key, contexts[0])
        if cached is not None:
            return cached
        batch = BatchKV([nothing], len(ids))
        tokens, lengths = torch.tensor([ids], device=device), torch.tensor([len(ids)], device=device)
        self._forward([(policy, served)], batch, tokens, lengths)
        kv = KV(ids, batch.row(0))
        served.prefixes.put(key, kv)
        return kv

    def _sample_all(self, rows: list[_Row], device: torch.device) -> None:
        """Prefill what is new in every row, then decode until each has stopped; keep the caches."""
        news = [row.request.ids[len(row.past.ids) :] for row in rows]
        width = max(map(len, news))
        tokens = torch.zeros((len(rows), width), dtype=torch.long)
        for i, new in enumerate(news):
            tokens[i, width - len(new) :] = torch.tensor(new)
        lengths = torch.tensor([len(new) for new in news], device=device)
        batch = BatchKV([row.past for row in rows], width + max(r.request.max_tokens for r in rows))
        live = list(rows)
        logits = self._forward([(r.request.policy, r.served) for r in live], batch, tokens.to(device), lengths)
        while True:
            running = [not row.finish for row in live]
            sampled = _sample(logits, live)
            for i, row in enumerate(live):
                if running[i] and row.finish:
                    kept = KV((*row.request.ids, *row.ids[:-1]), batch.row(i))
                    row.served.caches.put(row.request.key, kept)
            left = [i for i, row in enumerate(live) if not row.finish]
            if not left:
                return
            if len(left) <= _COMPACT_AT * len(live):
                keep = torch.tensor(left, device=device)
                batch.keep_rows(keep)
                live, sampled = [live[i] for i in left], sampled[keep]
            ones = torch.ones(len(live), dtype=torch.long, device=device)
            logits = self._forward([(r.request.policy, r.served) for r in live], batch, sampled[:, None], ones)

    def _forward(
        self, rows: list[tuple[str, _Served]], batch: BatchKV, tokens: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """One forward pass over right-aligned new tokens [B, W] of these policies; logits [B, vocabulary] after."""
        served = rows[0][1]
        if served.lanes:
            served.lanes.route([policy for policy, _ in rows])
        width, start = tokens.shape[1], batch.filled
        if width == 1 and steps(served.model):
            batch.mask[:, start] = True
            logits = step(served.model, batch, tokens[:, 0], batch.mask[:, : start + 1])
            batch.advance(1)
            return logits.float()
        columns = torch.arange(width, device=tokens.device)
        batch.mask[:, start : start + width] = columns >= (width - lengths)[:, None]
        mask = batch.mask[:, : start + width]
        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, start:]
        output = served.model(
            input_ids=tokens,
            attention_mask=mask.long(),
            position_ids=positions,
            past_key_values=batch,
            use_cache=True,
            logits_to_keep=1,
        )
        batch.advance(width)
        return output.logits[:, -1].float()  # type: ignore[no-any-return]


_COMPACT_AT = 0.75
"""Finished rows leave the batch once no more than this share still runs: moving the rest costs a copy."""


def _copied(module: Any, before: Any) -> Any:
    """A copy of a module's present weights, written over that of the version before where there is one."""
    if before is None:
        return copy.deepcopy(module).requires_grad_(False).eval()
    for own, new in zip(before.state_dict().values(), module.state_dict().values(), strict=True):
        own.copy_(new)
    return before


def _sample(logits: torch.Tensor, rows: list[_Row]) -> torch.Tensor:
    """Draw one token per row by inverse CDF from [B, V] logits and note its log-probability; returns [B]."""
    temperatures = torch.tensor([r.request.temperature for r in rows], device=logits.device)
    greedy = temperatures == 0
    logprobs = torch.log_softmax(logits / temperatures.masked_fill(greedy, 1.0)[:, None], -1)
    if wrong := logprobs.amax(-1).isnan().nonzero().flatten().tolist():
        name = rows[wrong[0]].request.policy
        raise WeightsError(
            f"policy '{name}': its weights give logits that are not finite (NaN): nothing can be sampled"
        )
    if any(r.request.top_k or r.request.top_p < 1 for r in rows):
        logprobs = truncate(logprobs, [r.request.top_k for r in rows], [r.request.top_p for r in rows])
    if bool(greedy.any()):
        best = torch.full_like(logprobs, -torch.inf).scatter(-1, logprobs.argmax(-1, keepdim=True), 0.0)
        logprobs = torch.where(greedy[:, None], best, logprobs)
    draws = torch.tensor(
        [0.0 if r.finish else r.draws[len(r.ids)] for r in rows], dtype=torch.double, device=logits.device
    )
    tokens = _inverse_cdf(logprobs.exp(), draws)
    chosen = logprobs.gather(-1, tokens[:, None]).squeeze(-1)
    if any(row.entropy is not None for row in rows):
        _note_entropy(logprobs, rows)
    for row, token, logprob in zip(rows, tokens.tolist(), chosen.tolist(), strict=True):
        if not row.finish:
            row.take(token, logprob)
    return tokens


def _note_entropy(logprobs: torch.Tensor, rows: list[_Row]) -> None:
    """Note for each row that still runs the entropy, in nats, of its [V] distribution among the [B, V]."""
    for row, entropy in zip(rows, torch.special.entr(logprobs.exp()).sum(-1).tolist(), strict=True):
        if not row.finish and row.entropy is not None:
            row.entropy.append(entropy)


def _inverse_cdf(p: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """[B] the token at which each row of [B, V] float32 probabilities, summed from the left, passes its draw in [0, 1).

    Sums are float64: those of blocks first, then those within the block where the draw lies.
    """
    rows, width = p.shape
    blocks = torch.nn.functional.pad(p, (0, -width % _BLOCK)).view(rows, -1, _BLOCK)
    by_block = blocks.sum(-1, dtype=torch.double).cumsum(-1)
    mass = draws[:, None] * by_block[:, -1:]
    block = _passed(by_block, mass)
    before = torch.nn.functional.pad(by_block, (1, 0)).gather(-1, block)
    within = blocks[torch.arange(rows, device=p.device), block.squeeze(-1)].double().cumsum(-1)
    return (block * _BLOCK + _passed(within, mass - before)).squeeze(-1)


_BLOCK = 256


def _passed(sums: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """[B, 1] the first column of growing [B, N] sums above [B, 1] that mass, never one that adds nothing."""
    below_all = torch.nextafter(sums[:, -1:], torch.zeros_like(mass))
    return torch.searchsorted(sums, torch.minimum(mass, below_all), right=True)


def truncate(logprobs: torch.Tensor, top_k: list[int], top_p: list[float]) -> torch.Tensor:
    """Keep the top-k tokens, then the smallest set holding mass top-p, of [B, V] and renormalise.

    `top_k` 0 and `top_p` 1 keep all. Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration".
    """
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[-1], device=logprobs.device)
    k = torch.tensor([k or logprobs.shape[-1] for k in top_k], device=logprobs.device)
    p = torch.tensor([p if p < 1 else 2.0 for p in top_p], device=logprobs.device)  # 2: never cut by rounding
    ordered = torch.log_softmax(ordered.masked_fill(rank >= k[:, None], -torch.inf), -1)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    ordered = ordered.masked_fill((before >= p[:, None]) & (rank > 0), -torch.inf)
    return torch.log_softmax(torch.full_like(logprobs, -torch.inf).scatter(-1, order, ordered), -1)
