"""Formulas for the memory in bytes of loading, playing and learning, as pure functions of sizes and settings.

They hold for decoders like Llama (Llama, Qwen2, Mistral, SmolLM2): grouped-query attention and a gated MLP of three
linear layers. They approximate other decoders with layers of the same sizes. The workload is an argument, so that a
measurement can pass exact values (`benchmarks/fits.py`).

A trained weight takes 4 bytes, its gradient 4 and AdamW's moments 8 (Rajbhandari et al. 2019, "ZeRO", §3.1).
Activations are the tensors that torch keeps for the backward pass, counted as in Korthikanti et al. 2022, "Reducing
Activation Recomputation in Large Transformer Models", §4.1.
"""

from dataclasses import dataclass

from agents.precision import Precision

Parts = dict[str, int]
"""Bytes of memory by purpose."""

LIBRARIES = 380_000_000
"""Memory of Python, torch and transformers (CPU builds) without a model. This and the next three values were fitted to
pilot runs."""
DEEPSPEED = 30_000_000
"""Additional memory of DeepSpeed once it has an optimiser."""
PRODUCTS = 170_000_000
"""Memory of the compiled bfloat16 products that oneDNN caches per shape, with fragmentation."""
FRAGMENTATION = 2
"""Ratio of a pass's peak memory to its live tensors, on a CPU. Passes differ in shape, the allocator keeps freed
buffers (`arena.process`), and the next pass can reuse few of them. The ratio is assumed to be 1 on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a decoder from which the formulas compute memory."""

    layers: int
    width: int
    """Hidden size."""
    inner: int
    """Intermediate size of the MLP; with experts, the sum over those that process one token."""
    heads: int
    kv_heads: int
    """Number of key-value heads."""
    head_width: int
    vocabulary: int
    parameters: int
    """Number of weights; a tied head counts once."""
    linear: int
    """Number of weights in linear layers, without the head."""
    edges: int
    """Sum of the input and output sizes of these linear layers; an adapter of rank r has r times as many weights."""
    tied: bool
    """True if the head shares the embedding's weights."""

    @property
    def head(self) -> int:
        """Number of weights of the head, the output layer."""
        return self.vocabulary * self.width

    @property
    def others(self) -> int:
        """Number of weights outside linear layers and head: embedding and norms."""
        return self.parameters - self.linear - (0 if self.tied else self.head)

    @property
    def bf16_bytes(self) -> int:
        """Bytes of all linear layers and the head in bfloat16. A tied head counts: its bfloat16 copy is separate."""
        return 2 * (self.linear + self.head)


@dataclass(frozen=True)
class Place:
    """Device and number format in which a model is computed."""

    precision: Precision
    gpu: bool = False
    packs: bool = True
    """True if the processor's bfloat16 products use packed matrices (`agents.bf16.can_pack_here`)."""

    @property
    def number(self) -> int:
        """Bytes per element of a matrix product's result: 2 with bfloat16 products, else 4."""
        return 2 if self.precision.uses_bf16_products else 4

    @property
    def fragmentation(self) -> int:
        """Ratio of a pass's peak memory to its live tensors: 1 on a GPU, `FRAGMENTATION` on a CPU."""
        return 1 if self.gpu else FRAGMENTATION

    @property
    def compiled_bytes(self) -> int:
        """Bytes of cached compiled products: `PRODUCTS` with bfloat16 products on a CPU, else 0."""
        return PRODUCTS if self.precision.uses_bf16_products and not self.gpu else 0


@dataclass(frozen=True)
class PlayWorkload:
    """Workload of an engine that samples replies: batch size, streams and tokens."""

    rows: int
    """Number of replies sampled in one batch."""
    streams: int
    """Number of token streams (one per seat of each match) whose caches are kept between turns."""
    context: int
    """Number of tokens of a finished stream."""
    fresh: int
    """Maximum number of uncached tokens per row in one pass."""
    cache_bytes: int = 2 << 30
    """Maximum bytes of caches kept between turns, over all policies."""


@dataclass(frozen=True, kw_only=True)
class LearningWorkload:
    """Workload of a trainer's update: tokens of a pass, and what is trained."""

    tokens: int
    """Number of tokens of a forward pass, including padding."""
    sampled: int
    """Number of these tokens that the policy sampled; only they have logits."""
    learners: int = 1
    """Number of trained policies, each with its own weights or adapter."""
    rank: int | None = None
    """Rank of the adapters; None trains all weights."""
    reference: bool = False
    """True if a KL term needs reference weights."""
    checkpointing: bool = False
    """True if a layer's activations are recomputed in the backward pass."""


def estimate_frozen_weights(shape: Shape, place: Place) -> int:
    """Return the bytes of a frozen model's weights. With bfloat16 products, linear layers and head are bfloat16."""
    if not place.precision.uses_bf16_products:
        return 4 * shape.parameters
    return shape.bf16_bytes + (2 if place.precision.has_bf16_weights else 4) * shape.others


def estimate_loading(shape: Shape, place: Place, file_bytes: int, frozen: bool) -> Parts:
    """Return the peak CPU bytes of loading one model: its weights, and the mapped file or the packed layers.

    `file_bytes` is the size of the weight files. Weights from a bfloat16 file (less than 3 bytes per weight) stay
    bfloat16 if products are bfloat16 and the model is `frozen`, such as an adapter's base. float16 files count as
    bfloat16 but take more. During packing, the largest layer, the head, exists in two layouts.
    """
    stays = frozen and place.precision.uses_bf16_products and file_bytes < 3 * shape.parameters
    half = stays or place.precision.has_bf16_weights
    whole = (2 if half else 4) * shape.parameters
    packs = place.precision.uses_bf16_products and place.packs and not place.gpu
    packed = shape.bf16_bytes + 2 * 2 * shape.head if packs else 0
    return {"libraries": LIBRARIES, "weights, twice for a moment": whole + max(file_bytes, packed)}


def estimate_cache_per_token(shape: Shape, place: Place) -> int:
    """Return the bytes of one token's keys and values: 2 × layers × key-value heads × head width × element size."""
    return 2 * shape.layers * shape.kv_heads * shape.head_width * place.number


def estimate_play_buffers(shape: Shape, place: Place, workload: PlayWorkload) -> Parts:
    """Return the bytes of play without weights, by purpose: caches, a forward pass over new tokens, sampling.

    When a quarter of the rows has ended, the batch's cache is copied without them, which takes 1.75 times its size. A
    pass keeps per token three vectors of the intermediate size and about three of the hidden size in float32. Sampling
    needs the logits and five float32 arrays of their shape.
    """
    kept = min(workload.streams * workload.context * estimate_cache_per_token(shape, place), workload.cache_bytes)
    batch = 7 * workload.rows * workload.context * estimate_cache_per_token(shape, place) // 4
    token = 3 * place.number * shape.inner + 12 * shape.width
    return {
        "attention caches": kept + batch,
        "reading what is new": workload.rows * workload.fresh * token,
        "sampling": workload.rows * shape.vocabulary * (place.number + 5 * 4),
        "compiled products": place.compiled_bytes,
    }


def estimate_play(shape: Shape, place: Place, workload: PlayWorkload) -> Parts:
    """Return the bytes of play with frozen weights, by purpose, as in `arena play`, `eval` and `serve`."""
    return {
        "libraries": LIBRARIES,
        "weights": estimate_frozen_weights(shape, place),
        **estimate_play_buffers(shape, place, workload),
    }


def count_adapter_weights(shape: Shape, rank: int) -> int:
    """Count an adapter's weights: A [rank, in] and B [out, rank] per linear layer (Hu et al. 2021, §4.1)."""
    return rank * shape.edges


def estimate_trainer(shape: Shape, place: Place, workload: LearningWorkload) -> Parts:
    """Return a trainer's bytes between passes, by purpose: weights, gradients, optimiser state, reference.

    Only one policy at a time has gradients. An adapter's base is frozen; on a CPU with bfloat16 products, a second
    layout of it is kept for play. Each adapter is float32, and with bfloat16 products has a bfloat16 copy for play.
    With bfloat16 weights, ZeRO's optimiser has float32 master weights and float32 sums of gradients.
    """
    learned = shape.parameters if workload.rank is None else count_adapter_weights(shape, workload.rank)
    frozen = estimate_frozen_weights(shape, place)
    if workload.rank is None:
        weights, base = (2 if place.precision.has_bf16_weights else 4) * learned, 0
        copies = shape.bf16_bytes if place.precision.uses_bf16_products and not place.precision.has_bf16_weights else 0
    else:
        weights, copies = (6 if place.precision.uses_bf16_products else 4) * learned, 0
        base = frozen + (shape.bf16_bytes if place.precision.uses_bf16_products and not place.gpu else 0)
    masters = 4 if place.precision.has_bf16_weights else 0
    reference = frozen if workload.rank is None else (6 if place.precision.uses_bf16_products else 4) * learned
    return {
        "libraries": LIBRARIES + DEEPSPEED,
        "weights": base + workload.learners * weights,
        "gradients": (6 if place.precision.has_bf16_weights else 4) * learned,
        "optimiser": workload.learners * (8 + masters) * learned,
        "reference": workload.learners * reference if workload.reference else 0,
        "bfloat16 copies": copies,
    }


def estimate_activations_per_token(shape: Shape, place: Place, workload: LearningWorkload) -> int:
    """Return the bytes of activations that one layer keeps per token for the backward pass.

    i, h, q and k are the sizes of the MLP, the hidden state, all queries and all keys. float32 keeps 4 vectors of size
    i (gate, its activation, up, their product), 6 of size h (input, normalised and scaled, at both norms), 2 of size q
    (queries, output), keys and values. bfloat16 products keep bfloat16 copies of their inputs, one for each of five
    layers, and norms keep float32. An adapter's norms are frozen and keep only their input.
    """
    i, h = shape.inner, shape.width
    q, k = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    frozen = workload.rank is not None
    if not place.precision.uses_bf16_products:
        return 4 * (4 * i + (4 if frozen else 6) * h + 2 * q + 2 * k)
    if place.precision.has_bf16_weights:
        return 8 * i + 16 * h + 4 * q + 4 * k
    return 8 * i + (18 if frozen else 26) * h + 4 * q + 4 * k


def estimate_activations(shape: Shape, place: Place, workload: LearningWorkload) -> int:
    """Return the bytes of activations of all layers kept for the backward pass.

    With checkpointing, these are the inputs of all layers and all activations of one layer.
    """
    layer = estimate_activations_per_token(shape, place, workload)
    if workload.checkpointing:
        return workload.tokens * (shape.layers * 4 * shape.width + layer)
    return workload.tokens * shape.layers * layer


def estimate_logits(shape: Shape, place: Place, workload: LearningWorkload) -> int:
    """Return the bytes of the sampled tokens' logits and their gradient, without the float32 copies of a few rows."""
    return 2 * workload.sampled * shape.vocabulary * place.number


def estimate_update(shape: Shape, place: Place, workload: LearningWorkload) -> Parts:
    """Return an update's peak bytes by purpose: at the start of a backward pass, with gradients of earlier passes."""
    return {
        **estimate_trainer(shape, place, workload),
        "activations": place.fragmentation * estimate_activations(shape, place, workload),
        "logits": place.fragmentation * estimate_logits(shape, place, workload),
        "compiled products": place.compiled_bytes,
    }


def estimate_play_between_updates(shape: Shape, place: Place, workload: LearningWorkload, play: PlayWorkload) -> Parts:
    """Return the bytes of play between updates, by purpose: those of the trainer without gradients, and of play."""
    between = estimate_trainer(shape, place, workload)
    return {**between, "gradients": 0, **estimate_play_buffers(shape, place, play)}
