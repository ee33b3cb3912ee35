"""Decode waiting requests as one batch, token by token.

Shared tokens are computed once. New contexts form a tree. Requests with the same context share a row of the batch until
they sample different tokens; then each continues in a row of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from agents.costs import estimate_costs
from agents.engines.base import Completion, Request
from agents.engines.graphs import GraphCache, round_up_rows
from agents.engines.inputs import Inputs, compute_last_logits
from agents.engines.kv import KV, BatchKV, empty_kv
from agents.engines.sampling import SamplingSettings, compute_distributions, draw_tokens
from agents.engines.served import ServedPolicy
from agents.engines.step import step, supports_step
from agents.errors import WeightsError
from agents.packing import Ids, count_shared, find_common_prefix
from agents.trees import build_tree, build_tree_mask
from agents.vision import ban_placeholder

_EMPTY = KV((), torch.empty(0))


@dataclass(kw_only=True)
class _Row:
    """State of one request during decoding: what it sampled so far, and its random draws."""

    request: Request
    served: ServedPolicy
    past: KV
    """Cache of the context's computed part; empty once the batch holds it."""
    entropy: list[float] | None
    """Entropy before each id; None if it is not measured."""
    jump: int = 0
    """Sum of the jumps of the context's images (see `agents.vision.compute_jump`)."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""

    def __post_init__(self) -> None:
        self.draws = np.random.Generator(np.random.PCG64(self.request.seed)).random(self.request.max_tokens)

    @property
    def settings(self) -> SamplingSettings:
        return SamplingSettings(self.request.temperature, self.request.top_k, self.request.top_p)

    def append(self, token: int, logprob: float) -> None:
        """Append a sampled token, and set `finish` if it is a stop id or the last allowed."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in self.request.stop_ids:
            self.finish = "stop"
        elif len(self.ids) == self.request.max_tokens:
            self.finish = "length"

    def make_completion(self) -> Completion:
        finish: Literal["stop", "length"] = "stop" if self.finish == "stop" else "length"
        entropy = None if self.entropy is None else tuple(self.entropy)
        return Completion(tuple(self.ids), tuple(self.logprobs), finish, self.served.version, entropy)


@dataclass(frozen=True)
class _Branch:
    """Row of the decoding batch: requests of one policy with the same ids so far, or an unused row."""

    policy: str
    rows: list[_Row]

    @property
    def token(self) -> int:
        """Id sampled last; 0 for an unused row."""
        return self.rows[0].ids[-1] if self.rows else 0


class Decoder:
    """Decodes requests of policies that share one model, in one batch."""

    def __init__(
        self, served: dict[str, ServedPolicy], bf16: bool, entropy: bool, replays: GraphCache | None = None
    ) -> None:
        """Create a decoder for the `served` policies, by name.

        `bf16`: whether products are bfloat16; `entropy`: whether all completions report entropies; `replays`: the
        model's recorded CUDA steps, if they can be recorded.
        """
        self.served, self.bf16, self.entropy = served, bf16, entropy
        self.model = next(iter(served.values())).model
        self.replays = replays if replays is not None and self._can_replay(replays) else None
        first = next(self.model.parameters())
        self.device, self.dtype = first.device, torch.bfloat16 if bf16 else first.dtype
        self._inputs = Inputs(self.model, set())

    def decode(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a reply for each request; return the completions in order. Caches of finished streams are stored."""
        media = {span for request in requests for span in request.media}
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            self._inputs = Inputs(self.model, media)
            rows = self._new_rows(requests)
            branches = _group_by_context(rows)
            batch, logits = self._prefill(branches, room=max(request.max_tokens for request in requests))
            while True:
                _sample(logits, branches)
                _store_finished(batch, branches)
                branches = _split_branches(batch, branches)
                if not branches:
                    return [row.make_completion() for row in rows]
                tokens = torch.tensor([[branch.token] for branch in branches], device=self.device)
                ones = torch.ones(len(branches), dtype=torch.long, device=self.device)
                jumps = self._inputs.stack_jumps([branch.rows[0].jump if branch.rows else 0 for branch in branches])
                logits = self._forward([branch.policy for branch in branches], batch, tokens, ones, jumps)

    def _can_replay(self, replays: GraphCache) -> bool:
        """Drop recorded steps of other weights or adapters; return False if several policies share a folder's model."""
        shared = next(iter(self.served.values())).shared_model
        replays.drop_stale(self.model, *((shared.changes, *sorted(self.served)) if shared is not None else ()))
        return len(self.served) == 1 or shared is None

    def _new_rows(self, requests: Sequence[Request]) -> list[_Row]:
        """Start a row for every request with the cache of its longest known prefix, computing new contexts."""
        pasts = [self.served[r.policy].caches.longest_prefix(r.key, r.keys) for r in requests]
        for policy in dict.fromkeys(r.policy for r in requests):
            new = [i for i, r in enumerate(requests) if r.policy == policy and pasts[i] is None]
            if new:
                caches = self._compute_caches(policy, [requests[i].keys[:-1] for i in new])
                for i in new:
                    pasts[i] = caches[requests[i].keys[:-1]]
        return [
            _Row(
                request=request,
                served=self.served[request.policy],
                past=past,
                jump=self._inputs.compute_jump(request.keys),
                entropy=[] if self.entropy or request.entropy else None,
            )
            for request, past in zip(requests, pasts, strict=True)
            if past is not None
        ]

    def _compute_caches(self, policy: str, contexts: list[Ids]) -> dict[Ids, KV]:
        """Compute caches for new contexts and return them by context.

        Shared tokens are computed once, and the common prefix stays cached for later contexts. The rest is computed in
        trees of at most `MAX_TREE_TOKENS` tokens. If the model supports no trees, every context gets the cache of the
        common prefix.
        """
        opening = self._get_prefix_cache(policy, find_common_prefix(contexts))
        limit = MAX_TREE_TOKENS.get(self.device.type, MAX_TREE_TOKENS["cpu"])
        distinct = sorted({ids for ids in contexts if len(ids) > len(opening.ids)})
        caches = dict.fromkeys(contexts, opening)
        if not self._supports_trees(policy):
            return caches
        tree: list[Ids] = []
        size = 0
        for ids in distinct:
            new = len(ids) - max(len(opening.ids), count_shared(tree[-1], ids) if tree else 0)
            if tree and size + new > limit:
                caches |= self._extend(policy, opening, tree)
                tree, size, new = [], 0, len(ids) - len(opening.ids)
            tree.append(ids)
            size += new
        return caches | (self._extend(policy, opening, tree) if tree else {})

    def _supports_trees(self, policy: str) -> bool:
        if (shared_model := self.served[policy].shared_model) is not None:
            shared_model.route([policy])
        return estimate_costs(self.model, self.bf16).scores > 0

    def _get_prefix_cache(self, policy: str, ids: Ids) -> KV:
        """Return the cache of these ids, the contexts' common prefix; it is kept until the weights change."""
        prefixes = self.served[policy].prefixes
        known = prefixes.find_nearest(ids) or empty_kv(self.model.config, self.dtype, self.device)
        if len(known.ids) < len(ids):
            known = self._extend(policy, known, [ids])[ids]
            prefixes.put(repr(ids), known)
        return known

    def _extend(self, policy: str, opening: KV, contexts: list[Ids]) -> dict[Ids, KV]:
        """Compute caches of sorted contexts, all longer than the prefix `opening`, in one pass over their tree."""
        known, tree = len(opening.ids), build_tree(contexts, len(opening.ids))
        batch = BatchKV([opening], room=len(tree.ids))
        tokens = torch.tensor([tree.ids], device=self.device)
        if len(contexts) == 1:
            lengths = torch.tensor([len(tree.ids)], device=self.device)
            self._forward([policy], batch, tokens, lengths, self._inputs.compute_jump(opening.ids))
            return {contexts[0]: KV(contexts[0], batch.copy_out(0))}
        tree_mask, places = build_tree_mask([tree], known, len(tree.ids))
        before = tree_mask.new_ones((1, len(tree.ids), known))
        mask, places = torch.cat([before, tree_mask], -1)[:, None].to(self.device), places.to(self.device)
        self._pass([policy], batch, tokens, mask, places, self._inputs.compute_jump(opening.ids))
        columns = [torch.tensor([*range(known), *(known + at for at in path)]) for path in tree.paths]
        return {
            ids: KV(ids, batch.data[:, :, 0].index_select(3, path.to(self.device)))
            for ids, path in zip(contexts, columns, strict=True)
        }

    def _prefill(self, branches: list[_Branch], room: int) -> tuple[BatchKV, torch.Tensor]:
        """Compute branches' new tokens; return a batch with `room` for more, and next-token logits [B, vocabulary]."""
        pasts = [branch.rows[0].past for branch in branches]
        news = [branch.rows[0].request.keys[len(past.ids) :] for branch, past in zip(branches, pasts, strict=True)]
        width = max(map(len, news))
        tokens = torch.zeros((len(branches), width), dtype=torch.long)
        for i, new in enumerate(news):
            tokens[i, width - len(new) :] = torch.tensor(new)
        lengths = torch.tensor([len(new) for new in news], device=self.device)
        requests = sum(len(branch.rows) for branch in branches)
        new_batch = BatchKV if self.replays is None else self.replays.buffers.make_batch
        batch = new_batch(pasts, width + room, requests)
        for row in (row for branch in branches for row in branch.rows):
            row.past = _EMPTY
        policies, jumps = (
            [branch.policy for branch in branches],
            self._inputs.stack_jumps([self._inputs.compute_jump(past.ids) for past in pasts]),
        )
        return batch, self._forward(policies, batch, tokens.to(self.device), lengths, jumps)

    def _forward(
        self,
        policies: list[str],
        batch: BatchKV,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        jumps: torch.Tensor | int,
    ) -> torch.Tensor:
        """Run new tokens [B, W], right-aligned, `lengths` [B] of each; return the logits [B, vocabulary] after them.

        `jumps` are those of the contexts before the tokens (see `Inputs.compute_jump`).
        """
        width, start = tokens.shape[1], batch.filled
        mask = batch.mask[:, : start + width]
        if width == 1:
            mask[:, start] = True
            return self._pass(policies, batch, tokens, mask, mask.sum(-1, keepdim=True) - 1, jumps)
        columns = torch.arange(width, device=tokens.device)
        mask[:, start:] = columns >= (width - lengths)[:, None]
        places = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, start:]
        return self._pass(policies, batch, tokens, mask, places, jumps)

    def _pass(
        self,
        policies: list[str],
        batch: BatchKV,
        tokens: torch.Tensor,
        mask: torch.Tensor,
        places: torch.Tensor,
        jumps: torch.Tensor | int,
    ) -> torch.Tensor:
        """Run tokens at places [B, W], extend the batch, and return the logits [B, vocabulary] of the last column.

        Tokens are ids, and keys of images (`agents.stream.compute_keys`). The bool mask marks the columns that hold
        tokens, [B, S], or the columns to which each token attends, [B, 1, W, S].
        """
        has_images = self._inputs.has_images and bool((tokens < 0).any())
        replays = self.replays if batch.is_fixed and tokens.shape[1] == 1 and not has_images else None
        if (shared_model := self.served[policies[0]].shared_model) is not None:
            shared_model.route(policies if replays is None else policies[:1] * round_up_rows(len(policies)))
        if replays is not None:
            logits = replays(self.model, batch, tokens[:, 0], places + jumps)
        elif tokens.shape[1] == 1 and mask.dim() == 2 and not has_images and supports_step(self.model):
            new = slice(batch.filled, batch.filled + 1)
            logits = step(self.model, batch.data, tokens[:, 0], places + jumps, batch.select_mask(mask), new)
        else:
            inputs = self._inputs(tokens, mask, places, jumps)
            logits = compute_last_logits(self.model, inputs | {"past_key_values": batch, "use_cache": True})
        batch.advance(tokens.shape[1])
        return ban_placeholder(self.model.config, logits.float())


MAX_TREE_TOKENS = {"cpu": 512, "cuda": 4096}
"""Maximum tokens of a tree, by device. Attention is computed between all of them, even if masked. On a GPU the host is
the bottleneck: with 512 tokens per pass an H200 was busy for a seventh of the time in play."""
_COMPACT_AT = 0.75
"""Unused rows are removed from the batch when at most this share is in use, because moving the rest costs a copy."""


def _group_by_context(rows: Sequence[_Row]) -> list[_Branch]:
    """Group rows by policy and context into branches."""
    found: dict[tuple[str, Ids], list[_Row]] = {}
    for row in rows:
        found.setdefault((row.request.policy, row.request.keys), []).append(row)
    return [_Branch(policy, group) for (policy, _), group in found.items()]


def _sample(logits: torch.Tensor, branches: Sequence[_Branch]) -> None:
    """Draw one token per request from logits [B, V] and append it, its log-probability and any measured entropy.

    Requests of a branch with equal settings draw independently from one distribution. Raises WeightsError for NaN.
    """
    requests = [(row, (at, row.settings)) for at, branch in enumerate(branches) for row in branch.rows]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(key for _, key in requests))}
    places = [at for at, _ in numbers]
    distinct = logits if places == [*range(len(logits))] else logits[places]
    logprobs = compute_distributions(distinct, [settings for _, settings in numbers])
    owners = torch.tensor([numbers[key] for _, key in requests], device=logits.device)
    draws = torch.tensor([row.draws[len(row.ids)] for row, _ in requests], dtype=torch.double, device=logits.device)
    p = logprobs.exp()
    tokens = draw_tokens(p, owners, draws)
    results = [tokens, logprobs[owners, tokens], logprobs.amax(-1)[owners]]
    if any(row.entropy is not None for row, _ in requests):
        results.append(torch.special.entr(p).sum(-1)[owners])
    answers = torch.stack([result.double() for result in results]).tolist()  # the only place that waits for a GPU
    for (row, (at, _)), token, logprob, highest, *entropy in zip(requests, *answers, strict=True):
        if math.isnan(highest):
            raise WeightsError(
                f"policy '{branches[at].policy}': its weights give logits that are not finite (NaN): nothing can be "
                "sampled"
            )
        if row.entropy is not None:
            row.entropy += entropy
        row.append(int(token), logprob)


def _store_finished(batch: BatchKV, branches: Sequence[_Branch]) -> None:
    """Store the attention caches of requests that have just finished, under the requests' keys."""
    for at, branch in enumerate(branches):
        if finished := [row for row in branch.rows if row.finish]:
            cache = KV((*finished[0].request.keys, *finished[0].ids[:-1]), batch.copy_out(at))
            for row in finished:
                row.served.caches.put(row.request.key, cache)


def _split_branches(batch: BatchKV, branches: Sequence[_Branch]) -> list[_Branch]:
    """Split branches by the token just sampled; return a branch per row of the batch, or [] if none continues.

    Unused rows are empty branches. Requests that sampled the same token stay together. The first part of a branch keeps
    its row; others get a copy.
    """
    parts_by_branch: list[list[_Branch]] = []
    for branch in branches:
        by_token: dict[int, list[_Row]] = {}
        for row in branch.rows:
            if not row.finish:
                by_token.setdefault(row.ids[-1], []).append(row)
        parts_by_branch.append([_Branch(branch.policy, rows) for rows in by_token.values()])
    continuing = [
        parts[0] if parts else _Branch(branch.policy, [])
        for branch, parts in zip(branches, parts_by_branch, strict=True)
    ]
    free = [at for at, branch in enumerate(continuing) if not branch.rows]
    for parent, parts in enumerate(parts_by_branch):
        for part in parts[1:]:
            at = free.pop(0) if free else len(continuing)
            continuing[at : at + 1] = [part]
            batch.copy_row(parent, at)
    indices = [at for at, branch in enumerate(continuing) if branch.rows]
    if len(indices) <= _COMPACT_AT * len(continuing):
        batch.keep_rows(indices)
        continuing = [continuing[at] for at in indices]
    return continuing if indices else []
