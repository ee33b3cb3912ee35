"""Score the sampled tokens of streams, with or without gradients, computing shared tokens once.

Streams of one role start with the same tokens. Within a batch this common prefix runs once, and its keys and values,
with gradients, serve every row. Streams that share more become paths of a tree in one row, in which each token attends
to its own path. The results equal those of one forward pass per stream.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from agents.packing import DEFAULT_COSTS, Costs, Pass, plan_passes
from agents.stream import Stream
from agents.token_scores import Divergence, TokenScores, log_softmax
from agents.trees import build_tree, build_tree_mask, compute_prefix_cache, use_checkpointing
from agents.vision import ImageFeatures, Images, ban_placeholder, build_layer_masks, collect_images, text_body

Item = TypeVar("Item")
ByNumber = Mapping[int, Item] | Sequence[Item]
"""Items by the number with which a pass refers to them."""


@dataclass(frozen=True, kw_only=True)
class StreamBatch:
    """Token streams packed as tensors for one forward pass. N is the number of sampled tokens of all streams."""

    index: tuple[int, ...]
    """Indices of the streams in the original list, row after row."""
    prefix: torch.Tensor
    """[P] int64, common prefix of all rows; P may be 0."""
    suffix: torch.Tensor
    """[B, L] int64, the remaining ids of each row, right-padded with 0."""
    lengths: torch.Tensor
    """[B] int64, unpadded length of each row of `suffix`."""
    owners: torch.Tensor
    """[N] int64, position in `index` of each sampled token's stream."""
    rows: torch.Tensor
    """[N] int64, row of each sampled token."""
    columns: torch.Tensor
    """[N] int64, column of `suffix` whose output predicts the token."""
    targets: torch.Tensor
    """[N] int64, the sampled ids."""
    temperatures: torch.Tensor
    """[N] float32, sampling temperature of each token."""
    tree: torch.Tensor | None = None
    """[B, L, L] bool, tree attention mask of each row; None if all rows are plain sequences."""
    positions: torch.Tensor | None = None
    """[B, L] int64, with a tree: position of each token in its streams, including the prefix."""
    images: Images | None = None
    """Images of the batch, whose placeholders have id 0 in `prefix` and `suffix`; None without images."""
    teacher: torch.Tensor | None = None
    """[N, V] float32, a teacher's log-probabilities of all ids at each sampled token, for `Scores.divergence`."""

    def to(self, device: torch.device) -> "StreamBatch":
        """Return the batch with all tensors on a device."""
        tensors = {name: tensor for name, tensor in vars(self).items() if name != "index" and tensor is not None}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class Scores:
    """Log-probability and entropy of each of a batch's N sampled tokens."""

    logprobs: torch.Tensor
    """[N] float32, natural log-probability at the sampling temperature."""
    entropy: torch.Tensor
    """[N] float32, entropy in nats of the sampling distribution without truncation."""
    divergence: torch.Tensor | None = None
    """[N] float32, KL divergence in nats of that distribution from the batch's `teacher`; None without one."""


class StreamScorer(torch.nn.Module):
    """A causal language model that scores the sampled tokens of a `StreamBatch`."""

    def __init__(self, model: Any, bf16: bool = False, gradient_checkpointing: bool = False) -> None:
        super().__init__()
        self.model = model
        self.bf16, self.gradient_checkpointing = bf16, gradient_checkpointing
        config = model.config
        self.plain_head = not any(
            getattr(config.get_text_config(decoder=True), name, None)
            for name in ("final_logit_softcapping", "logit_scale", "logits_scaling", "output_multiplier")
        )
        """Whether logits are the head's output, neither scaled nor capped. The head can then skip other positions."""

    def forward(self, batch: StreamBatch) -> Scores:
        """Score the batch's sampled tokens. Gradients flow through the shared prefix too."""
        logits, divergence = self._logits(batch), None
        if batch.teacher is not None:
            divergence = Divergence.apply(logits, batch.teacher, batch.temperatures)  # type: ignore[no-untyped-call]
        args = logits, batch.targets, batch.temperatures
        logprobs, entropy = TokenScores.apply(*args)  # type: ignore[no-untyped-call]
        return Scores(logprobs, entropy, divergence)

    def compute_distributions(self, batch: StreamBatch) -> torch.Tensor:
        """Return the log-probabilities of all ids at each sampled token, [N, V] float32."""
        return log_softmax(self._logits(batch), batch.temperatures)

    def _logits(self, batch: StreamBatch) -> torch.Tensor:
        """Return the logits [N, V] that predict the batch's sampled tokens."""
        recompute = self.gradient_checkpointing and torch.is_grad_enabled()
        precision = torch.autocast(batch.suffix.device.type, torch.bfloat16, enabled=self.bf16)
        with precision, use_checkpointing(self.model) if recompute else nullcontext():
            features = None if batch.images is None else batch.images.compute_features(self.model)
            body = self.model.base_model if features is None else text_body(self.model)
            if self.plain_head:
                logits = self.model.get_output_embeddings()(compute_hidden_states(body, batch, features))
            else:
                logits = self.model(**_build_inputs(body, batch, features)).logits[batch.rows, batch.columns]
            return ban_placeholder(self.model.config, logits)


def compute_hidden_states(body: Any, batch: StreamBatch, features: ImageFeatures | None = None) -> torch.Tensor:
    """Run a model's body and return the hidden states [N, width] at the positions that predict the sampled tokens.

    `features` are those of the batch's images; with them, `body` must be that of the language model.
    """
    hidden: torch.Tensor = body(**_build_inputs(body, batch, features)).last_hidden_state
    return hidden[batch.rows, batch.columns]


def _build_inputs(body: Any, batch: StreamBatch, features: ImageFeatures | None) -> dict[str, Any]:
    """Return the keyword arguments of a forward pass over the suffixes. Runs the shared prefix first, if any."""
    if batch.images is None or features is None:
        past: Any = compute_prefix_cache(body, input_ids=batch.prefix[None]) if len(batch.prefix) else None
        return {"input_ids": batch.suffix, "past_key_values": past, "use_cache": past is not None} | _build_row_inputs(
            batch
        )
    past, before = None, torch.zeros((1, 1), dtype=torch.long, device=batch.suffix.device)
    if len(batch.prefix):
        rows = batch.images.prefix[None]
        past = compute_prefix_cache(
            body, **features.embed(body, batch.prefix[None], rows), **_build_prefix_inputs(body, features, rows)
        )
        before = features.compute_jumps(rows)[:, None]
    inputs = features.embed(body, batch.suffix, batch.images.suffix)
    inputs |= {"past_key_values": past, "use_cache": past is not None} | _build_row_inputs(batch)
    places = inputs["position_ids"]
    if features.vision.is_bidirectional:
        inputs["attention_mask"] = _build_image_masks(
            body, features, places, batch.images.suffix, inputs["attention_mask"].bool()
        )
    return inputs | {"position_ids": features.positions(places, batch.images.suffix, before, batch.tree)}


def _build_row_inputs(batch: StreamBatch) -> dict[str, torch.Tensor]:
    """Return the attention mask and the position ids of a batch's rows, which are trees or plain sequences."""
    if batch.tree is not None and batch.positions is not None:
        before = batch.tree.new_ones((*batch.suffix.shape, len(batch.prefix)))
        mask = torch.cat([before, batch.tree], -1)
        return {"attention_mask": mask[:, None], "position_ids": batch.positions}
    columns = torch.arange(batch.suffix.shape[1], device=batch.suffix.device)
    is_token = columns < batch.lengths[:, None]
    return {
        "attention_mask": torch.cat([is_token.new_ones((len(is_token), len(batch.prefix))), is_token], 1).long(),
        "position_ids": (columns + len(batch.prefix)).expand(len(is_token), -1),
    }


def _build_prefix_inputs(body: Any, features: ImageFeatures, rows: torch.Tensor) -> dict[str, Any]:
    """Return the attention mask or position ids of a prefix, unless they are a plain sequence's."""
    places = torch.arange(rows.shape[1], device=rows.device)[None]
    if features.vision.is_bidirectional:
        return {"attention_mask": _build_image_masks(body, features, places, rows, places >= 0)}
    return {"position_ids": features.positions(places, rows)} if features.vision.has_grid_positions else {}


def _build_image_masks(
    body: Any, features: ImageFeatures, places: torch.Tensor, rows: torch.Tensor, is_token: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return attention masks by kind of layer, in which the tokens of an image attend to all of that image.

    `places` [B, L] are positions including the prefix; `is_token` [B, P + L] is False for padding.
    """
    keys = torch.arange(is_token.shape[1], device=is_token.device).expand(len(is_token), -1)
    mask = is_token[:, None] & (keys[:, None] <= places[..., None])
    mask[..., -places.shape[1] :] |= features.same_image_mask(places, rows)
    return build_layer_masks(body, mask, places, keys)


def pack(
    streams: Sequence[Stream],
    temperatures: Sequence[float],
    token_budget: int,
    indices: Iterable[int] | None = None,
    costs: Costs = DEFAULT_COSTS,
) -> Iterator[StreamBatch]:
    """Yield the tensors of each pass of `plan_passes`. `temperatures` are the streams' sampling temperatures."""
    passes = plan_passes(streams, token_budget, indices, costs)
    return (build_batch(streams, temperatures, planned_pass) for planned_pass in passes)


def build_batch(streams: ByNumber[Stream], temperatures: ByNumber[float], planned_pass: Pass) -> StreamBatch:
    """Build the tensors of one pass, on the CPU. `temperatures` are the streams' sampling temperatures.

    An empty pass gives two dummy tokens with one target, because the model must be called on every rank.
    """
    if not planned_pass.rows:
        return _DUMMY_BATCH
    prefix, rows = (
        planned_pass.prefix,
        [build_tree([streams[i].keys for i in row.streams], planned_pass.prefix) for row in planned_pass.rows],
    )
    suffix = torch.zeros((len(rows), max(len(row.ids) for row in rows)), dtype=torch.long)
    owners, numbers, columns, targets, per_token = [], [], [], [], []
    paths = ((number, path) for number, row in enumerate(rows) for path in row.paths)
    for owner, (i, (number, path)) in enumerate(zip(planned_pass.index, paths, strict=True)):
        stream = streams[i]
        sampled = [k for k, is_sampled in enumerate(stream.mask) if is_sampled]
        owners += [owner] * len(sampled)
        numbers += [number] * len(sampled)
        columns += [path[k - prefix - 1] for k in sampled]
        targets += [stream.ids[k] for k in sampled]
        per_token += [temperatures[i]] * len(sampled)
    for number, row in enumerate(rows):
        suffix[number, : len(row.ids)] = torch.tensor(row.ids)
    opening = torch.tensor(streams[planned_pass.index[0]].keys[:prefix], dtype=torch.long)
    tree, positions = (
        build_tree_mask(rows, prefix, suffix.shape[1]) if len(planned_pass.index) > len(rows) else (None, None)
    )
    return StreamBatch(
        index=planned_pass.index,
        prefix=opening.clamp(min=0),
        suffix=suffix.clamp(min=0),
        lengths=torch.tensor([len(row.ids) for row in rows]),
        owners=torch.tensor(owners),
        rows=torch.tensor(numbers),
        columns=torch.tensor(columns),
        targets=torch.tensor(targets),
        temperatures=torch.tensor(per_token, dtype=torch.float32),
        tree=tree,
        positions=positions,
        images=collect_images([streams[i] for i in planned_pass.index], opening, suffix),
    )


_DUMMY_BATCH = StreamBatch(
    index=(),
    prefix=torch.zeros(0, dtype=torch.long),
    suffix=torch.zeros((1, 2), dtype=torch.long),
    lengths=torch.tensor([2]),
    owners=torch.tensor([0]),
    rows=torch.tensor([0]),
    columns=torch.tensor([0]),
    targets=torch.tensor([0]),
    temperatures=torch.ones(1),
)


def split_by_stream(batch: StreamBatch, values: torch.Tensor) -> Iterator[tuple[int, np.ndarray]]:
    """Split a batch's [N] or [N, V] tensor by stream. Yields (stream index, float32 array of its tokens' values)."""
    array = values.detach().float().cpu().numpy()
    owners = batch.owners.cpu().numpy()
    for owner, i in enumerate(batch.index):
        yield i, array[owners == owner]


class StreamScores(NamedTuple):
    """Log-probability and entropy of each of one stream's sampled tokens, in order."""

    logprobs: np.ndarray
    """float32, natural log-probabilities at the sampling temperature."""
    entropy: np.ndarray
    """float32, in nats."""


def score_with_entropy(
    scorer: torch.nn.Module,
    streams: Sequence[Stream],
    temperatures: Sequence[float],
    token_budget: int = 4096,
    costs: Costs = DEFAULT_COSTS,
) -> list[StreamScores]:
    """Return log-probabilities and entropies of each stream's sampled tokens, without gradients, in stream order.

    A stream without sampled tokens has empty arrays. `token_budget` is the maximum number of tokens per forward pass.
    """
    scores = score_passes(scorer, streams, temperatures, plan_passes(streams, token_budget, costs=costs))
    empty = StreamScores(np.zeros(0, np.float32), np.zeros(0, np.float32))
    return [scores.get(i, empty) for i in range(len(streams))]


def score_passes(
    scorer: torch.nn.Module, streams: ByNumber[Stream], temperatures: ByNumber[float], passes: Iterable[Pass]
) -> dict[int, StreamScores]:
    """Score the streams of the passes without gradients. Returns `StreamScores` by stream index."""
    device = next(scorer.parameters()).device
    by_stream: dict[int, StreamScores] = {}
    with torch.no_grad():
        for planned_pass in passes:
            batch = build_batch(streams, temperatures, planned_pass).to(device)
            scores = scorer(batch)
            entropies = dict(split_by_stream(batch, scores.entropy))
            for i, logprobs in split_by_stream(batch, scores.logprobs):
                by_stream[i] = StreamScores(logprobs, entropies[i])
    return by_stream


def score_distributions(
    scorer: StreamScorer,
    streams: Sequence[Stream],
    temperatures: Sequence[float],
    token_budget: int = 4096,
    costs: Costs = DEFAULT_COSTS,
) -> list[np.ndarray]:
    """Return the log-probabilities of all ids at each stream's n sampled tokens, without gradients, in stream order.

    The result has one float32 array [n, V] per stream. It is large: with SmolLM2 0.2 MB per token.
    """
    device = next(scorer.parameters()).device
    by_stream: dict[int, np.ndarray] = {}
    with torch.no_grad():
        for planned_pass in plan_passes(streams, token_budget, costs=costs):
            batch = build_batch(streams, temperatures, planned_pass).to(device)
            by_stream |= dict(split_by_stream(batch, scorer.compute_distributions(batch)))
    size = next(iter(by_stream.values())).shape[1] if by_stream else 0
    return [by_stream.get(i, np.zeros((0, size), np.float32)) for i in range(len(streams))]


def score_streams(
    scorer: torch.nn.Module,
    streams: Sequence[Stream],
    temperatures: Sequence[float],
    token_budget: int = 4096,
    costs: Costs = DEFAULT_COSTS,
) -> list[np.ndarray]:
    """Return the log-probabilities of each stream's sampled tokens, without gradients: one float32 array per stream."""
    return [scores.logprobs for scores in score_with_entropy(scorer, streams, temperatures, token_budget, costs)]
