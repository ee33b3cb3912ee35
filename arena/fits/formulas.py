"""Formulas for the memory in bytes of loading, playing and learning, as pure functions of sizes and settings.

They hold for decoders like Llama (Llama, Qwen2, Mistral, SmolLM2), which have grouped-query attention and a gated MLP
of three linear layers. For other decoders with layers of the same sizes they are approximations. Workloads are
arguments, so that a measurement can pass exact values (`benchmarks/fits.py`).

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
"""Memory of the compiled bfloat16 matrix products that oneDNN caches per shape, with fragmentation."""
FRAGMENTATION = 2
"""Ratio of a pass's peak memory to its live tensors on a CPU. Passes differ in shape, the allocator keeps freed buffers
(`arena.process`), and the next pass can reuse few of them. On a GPU the ratio is assumed to be 1."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a decoder model, from which the formulas compute memory."""

    layers: int
    width: int
    """Hidden size."""
    inner: int
    """Intermediate size of the MLP; with experts, the sum over the experts that process one token."""
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
    """Sum of the input and output sizes of these linear layers. An adapter of rank r has r times as many weights."""
    tied: bool
    """True if the head shares the embedding's weights."""

    @property
    def head(self) -> int:
        """Number of weights of the head, the output layer."""
        return self.vocabulary * self.width

    @property
    def other_weights(self) -> int:
        """Number of weights outside linear layers and head: embedding and norms."""
        return self.parameters - self.linear - (0 if self.tied else self.head)

    @property
    def bf16_bytes(self) -> int:
        """Bytes of all linear layers and the head in bfloat16. A tied head counts: its bfloat16 copy is separate."""
        return 2 * (self.linear + self.head)


@dataclass(frozen=True)
class ComputeConfig:
    """Precision and device with which a model is computed."""

    precision: Precision
    gpu: bool = False
    packs: bool = True
    """True if the processor's bfloat16 products use packed matrices (`agents.bf16.can_pack_here`)."""

    @property
    def element_bytes(self) -> int:
        """Bytes per element of the result of a matrix product: 2 with bfloat16 products, else 4."""
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
    """Workload of a trainer's update: tokens of a pass, number and kind of trained policies, and memory options."""

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


def estimate_frozen_weights(shape: Shape, config: ComputeConfig) -> int:
    """Return the bytes of a frozen model's weights. Linear layers and head are bfloat16 if products are."""
    if not config.precision.uses_bf16_products:
        return 4 * shape.parameters
    return shape.bf16_bytes + (2 if config.precision.has_bf16_weights else 4) * shape.other_weights


def estimate_loading(shape: Shape, config: ComputeConfig, file_bytes: int, frozen: bool) -> Parts:
    """Return the peak bytes of main memory to load one model: its weights, plus the mapped file or the packed layers.

    `file_bytes` is the size of the weight files. Weights from a bfloat16 file (less than 3 bytes per weight) stay
    bfloat16 if products are bfloat16 and the model is `frozen`, such as an adapter's base. float16 files count as
    bfloat16 but take more memory. During packing, the largest layer, the head, exists in two layouts.
    """
    stays_bf16 = frozen and config.precision.uses_bf16_products and file_bytes < 3 * shape.parameters
    is_bf16 = stays_bf16 or config.precision.has_bf16_weights
    weights = (2 if is_bf16 else 4) * shape.parameters
    packs = config.precision.uses_bf16_products and config.packs and not config.gpu
    packed = shape.bf16_bytes + 2 * 2 * shape.head if packs else 0
    return {"libraries": LIBRARIES, "weights while loading": weights + max(file_bytes, packed)}


def estimate_cache_per_token(shape: Shape, config: ComputeConfig) -> int:
    """Return the bytes of one token's keys and values: 2 × layers × key-value heads × head width × element size."""
    return 2 * shape.layers * shape.kv_heads * shape.head_width * config.element_bytes


def estimate_play_buffers(shape: Shape, config: ComputeConfig, workload: PlayWorkload) -> Parts:
    """Return the bytes that play needs besides the weights, by purpose: caches, a pass over new tokens, and sampling.

    When a quarter of the rows has finished, the batch's cache is copied without them, which takes 1.75 times its size.
    A pass keeps three vectors of the intermediate size and about three float32 vectors of the hidden size per token.
    Sampling needs the logits and five float32 arrays of their shape.
    """
    caches = min(workload.streams * workload.context * estimate_cache_per_token(shape, config), workload.cache_bytes)
    batch = 7 * workload.rows * workload.context * estimate_cache_per_token(shape, config) // 4
    token = 3 * config.element_bytes * shape.inner + 12 * shape.width
    return {
        "attention caches": caches + batch,
        "reading new tokens": workload.rows * workload.fresh * token,
        "sampling": workload.rows * shape.vocabulary * (config.element_bytes + 5 * 4),
        "compiled products": config.compiled_bytes,
    }


def estimate_play(shape: Shape, config: ComputeConfig, workload: PlayWorkload) -> Parts:
    """Return the bytes of play with frozen weights, by purpose, as in `arena play`, `eval` and `serve`."""
    return {
        "libraries": LIBRARIES,
        "weights": estimate_frozen_weights(shape, config),
        **estimate_play_buffers(shape, config, workload),
    }


def count_adapter_weights(shape: Shape, rank: int) -> int:
    """Count an adapter's weights: matrices A [rank, in] and B [out, rank] per linear layer (Hu et al. 2021, §4.1)."""
    return rank * shape.edges


def estimate_trainer(shape: Shape, config: ComputeConfig, workload: LearningWorkload) -> Parts:
    """Return the bytes that a trainer holds between passes, by purpose: weights, gradients, optimiser and reference.

    Only one policy at a time has gradients. An adapter's base is frozen; on a CPU with bfloat16 products, it is also
    kept in a second layout for play. Adapters are float32 and, with bfloat16 products, also have a bfloat16 copy for
    play. With bfloat16 weights, ZeRO's optimiser has float32 master weights and float32 sums of gradients.
    """
    learned = shape.parameters if workload.rank is None else count_adapter_weights(shape, workload.rank)
    frozen = estimate_frozen_weights(shape, config)
    if workload.rank is None:
        weights, base = (2 if config.precision.has_bf16_weights else 4) * learned, 0
        copies = (
            shape.bf16_bytes if config.precision.uses_bf16_products and not config.precision.has_bf16_weights else 0
        )
    else:
        weights, copies = (6 if config.precision.uses_bf16_products else 4) * learned, 0
        base = frozen + (shape.bf16_bytes if config.precision.uses_bf16_products and not config.gpu else 0)
    masters = 4 if config.precision.has_bf16_weights else 0
    reference = frozen if workload.rank is None else (6 if config.precision.uses_bf16_products else 4) * learned
    return {
        "libraries": LIBRARIES + DEEPSPEED,
        "weights": base + workload.learners * weights,
        "gradients": (6 if config.precision.has_bf16_weights else 4) * learned,
        "optimiser": workload.learners * (8 + masters) * learned,
        "reference": workload.learners * reference if workload.reference else 0,
        "bfloat16 copies": copies,
    }


def estimate_activations_per_token(shape: Shape, config: ComputeConfig, workload: LearningWorkload) -> int:
    """Return the bytes of activations that one layer keeps per token for the backward pass.

    Let i, h, q and k be the sizes of the MLP, the hidden state, all queries and all keys. In float32 there are 4
    vectors of size i (gate, its activation, up, their product), 6 of size h (input, normalised and scaled, at both
    norms), 2 of size q (queries, output), and keys and values. bfloat16 products keep bfloat16 copies of their inputs,
    one for each of five layers, and norms keep float32. An adapter's norms are frozen and keep only their input.
    """
    i, h = shape.inner, shape.width
    q, k = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    is_frozen = workload.rank is not None
    if not config.precision.uses_bf16_products:
        return 4 * (4 * i + (4 if is_frozen else 6) * h + 2 * q + 2 * k)
    if config.precision.has_bf16_weights:
        return 8 * i + 16 * h + 4 * q + 4 * k
    return 8 * i + (18 if is_frozen else 26) * h + 4 * q + 4 * k


def estimate_activations(shape: Shape, config: ComputeConfig, workload: LearningWorkload) -> int:
    """Return the bytes of activations that all layers keep for the backward pass.

    With checkpointing, these are the inputs of all layers, and all activations of one layer.
    """
    layer = estimate_activations_per_token(shape, config, workload)
    if workload.checkpointing:
        return workload.tokens * (shape.layers * 4 * shape.width + layer)
    return workload.tokens * shape.layers * layer


def estimate_logits(shape: Shape, config: ComputeConfig, workload: LearningWorkload) -> int:
    """Return the bytes of the sampled tokens' logits and their gradient. Float32 copies of a few rows are ignored."""
    return 2 * workload.sampled * shape.vocabulary * config.element_bytes


def estimate_update(shape: Shape, config: ComputeConfig, workload: LearningWorkload) -> Parts:
    """Return an update's peak bytes by purpose, reached at a backward pass with gradients of earlier passes."""
    return {
        **estimate_trainer(shape, config, workload),
        "activations": config.fragmentation * estimate_activations(shape, config, workload),
        "logits": config.fragmentation * estimate_logits(shape, config, workload),
        "compiled products": config.compiled_bytes,
    }


def estimate_play_between_updates(
    shape: Shape, config: ComputeConfig, workload: LearningWorkload, play: PlayWorkload
) -> Parts:
    """Return the bytes of play between updates, by purpose: those of the trainer without gradients, plus play's."""
    between = estimate_trainer(shape, config, workload)
    return {**between, "gradients": 0, **estimate_play_buffers(shape, config, play)}
