"""Memory in bytes that loading, playing and learning need, part by part: pure functions of sizes and settings.

They hold for decoders of the Llama kind (Llama, Qwen2, Mistral, SmolLM2): attention with shared keys, and three linear
layers with a gate. Others come close as far as their layers have the same sizes. What a formula cannot know of the
workload is said in its arguments, so that a measurement can say it exactly (`benchmarks/fits.py`).

Of each weight that learns there are 4 bytes, 4 of gradient and 8 of AdamW's moments (Rajbhandari et al. 2019, "ZeRO",
§3.1). The bytes of activations are those of the tensors that torch keeps for the backward pass, counted one by one, as
in Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", §4.1, for other layers.
"""

from dataclasses import dataclass

from agents.precision import Precision

Parts = dict[str, int]
"""Bytes by what they are for."""

LIBRARIES = 380_000_000
"""Python, torch and transformers with nothing loaded, CPU builds. This and the next three were fitted to pilot runs."""
DEEPSPEED = 30_000_000
"""DeepSpeed on top of them, once an optimiser is made."""
PRODUCTS = 170_000_000
"""Compiled bfloat16 products that oneDNN keeps for shapes it has met, and memory between them."""
HOLES = 2
"""Memory of a pass over the tensors that live in it, on a CPU. Passes differ in shape, the allocator keeps what one of
them freed (`arena.process`), and the next fits into little of it. On a GPU it is taken to be 1."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    layers: int
    width: int
    """Numbers in a token's vector."""
    inner: int
    """Numbers within a layer's gated part; with experts, of those that a token passes."""
    heads: int
    kv_heads: int
    """Heads that have keys and values of their own."""
    head_width: int
    vocabulary: int
    parameters: int
    """All weights; a head that is the embedding counts once."""
    linear: int
    """Weights in linear layers, the head not among them."""
    edges: int
    """Inputs and outputs of those layers together: an adapter of rank r has r times as many weights."""
    tied: bool
    """Whether the head's weights are the embedding's."""

    @property
    def head(self) -> int:
        """Weights of the head."""
        return self.vocabulary * self.width

    @property
    def others(self) -> int:
        """Weights outside linear layers and head: the embedding, norms."""
        return self.parameters - self.linear - (0 if self.tied else self.head)

    @property
    def halved(self) -> int:
        """Bytes of all linear layers and the head in bfloat16; a tied head is then a copy beside the embedding."""
        return 2 * (self.linear + self.head)


@dataclass(frozen=True)
class Place:
    """Device and numbers that a model computes with."""

    precision: Precision
    gpu: bool = False
    packs: bool = True
    """Whether the processor's bfloat16 products take packed matrices (`agents.half.packs_here`)."""

    @property
    def number(self) -> int:
        """Bytes of a number that a matrix product gives."""
        return 2 if self.precision.bf16_products else 4

    @property
    def holes(self) -> int:
        """Memory of a pass over the tensors that live in it."""
        return 1 if self.gpu else HOLES

    @property
    def compiled(self) -> int:
        """Bytes of compiled products."""
        return PRODUCTS if self.precision.bf16_products and not self.gpu else 0


@dataclass(frozen=True)
class Playing:
    """Demands of play on an engine."""

    rows: int
    """Replies that are written at once."""
    streams: int
    """Seats' streams whose caches are kept between turns."""
    context: int
    """Tokens of a stream at its end."""
    fresh: int
    """Tokens of a row that one pass reads at most: what no cache knows yet."""
    cache_bytes: int = 2 << 30
    """Most that is kept of streams' caches between turns, all policies together."""


@dataclass(frozen=True)
class Learning:
    """Demands of an update on a trainer."""

    tokens: int
    """Tokens of a forward pass, padding among them."""
    sampled: int
    """Those of them that the policy sampled, of which there are logits."""
    learners: int = 1
    """Policies that learn, each with weights, or an adapter, of its own."""
    rank: int | None = None
    """Of adapters; None is all weights."""
    reference: bool = False
    """Whether a KL is taken to the initial weights."""
    checkpointing: bool = False
    """Whether a layer's activations are recomputed."""


def frozen_weights(shape: Shape, place: Place) -> int:
    """Weights of a model that only plays: float32, or linear layers and head in bfloat16 beside the rest."""
    if not place.precision.bf16_products:
        return 4 * shape.parameters
    return shape.halved + (2 if place.precision.bf16_weights else 4) * shape.others


def loading(shape: Shape, place: Place, file_bytes: int, frozen: bool) -> Parts:
    """Loading one model, in the processor's memory: the mapped file and a copy, or the copy and what is made of it.

    What a file holds in bfloat16, two bytes a weight, is copied so where products are bfloat16 and the model is
    `frozen`, as an adapter's base; float16 is not told apart, and takes more. Of packed layers the largest, the head,
    is there in two layouts for a moment.
    """
    stays = frozen and place.precision.bf16_products and file_bytes < 3 * shape.parameters
    half = stays or place.precision.bf16_weights
    whole = (2 if half else 4) * shape.parameters
    packs = place.precision.bf16_products and place.packs and not place.gpu
    packed = shape.halved + 2 * 2 * shape.head if packs else 0
    return {"libraries": LIBRARIES, "weights, twice for a moment": whole + max(file_bytes, packed)}


def cache_per_token(shape: Shape, place: Place) -> int:
    """Keys and values of one token: 2 × layers × key heads × their width."""
    return 2 * shape.layers * shape.kv_heads * shape.head_width * place.number


def at_play(shape: Shape, place: Place, asked: Playing) -> Parts:
    """Caches, a pass over what is new, and sampling; without the weights.

    When a quarter of the rows has ended, the batch's cache is copied without them: 1.75 times its room for a moment.
    A pass holds of each token the residual and what a layer makes of it: three inner vectors, and about three of the
    width in float32. Sampling takes logits and five more arrays like them in float32.
    """
    kept = min(asked.streams * asked.context * cache_per_token(shape, place), asked.cache_bytes)
    batch = 7 * asked.rows * asked.context * cache_per_token(shape, place) // 4
    token = 3 * place.number * shape.inner + 12 * shape.width
    return {
        "attention caches": kept + batch,
        "reading what is new": asked.rows * asked.fresh * token,
        "sampling": asked.rows * shape.vocabulary * (place.number + 5 * 4),
        "compiled products": place.compiled,
    }


def playing(shape: Shape, place: Place, asked: Playing) -> Parts:
    """Frozen weights at play: `arena play`, `eval`, `serve`."""
    return {"libraries": LIBRARIES, "weights": frozen_weights(shape, place), **at_play(shape, place, asked)}


def adapter(shape: Shape, rank: int) -> int:
    """Weights of one adapter on all linear layers: A [rank, in] and B [out, rank] of each (Hu et al. 2021, §4.1)."""
    return rank * shape.edges


def held(shape: Shape, place: Place, asked: Learning) -> Parts:
    """Weights, gradients and optimiser state of what learns; only one policy at a time has gradients.

    An adapter's base is frozen, and on a CPU in bfloat16 held in a second layout, in which it plays. Each adapter is
    float32, with a bfloat16 copy that plays. With bfloat16 weights ZeRO's optimiser has float32 masters, and float32
    sums of the gradients beside the gradients themselves.
    """
    learned = shape.parameters if asked.rank is None else adapter(shape, asked.rank)
    frozen = frozen_weights(shape, place)
    if asked.rank is None:
        weights, base = (2 if place.precision.bf16_weights else 4) * learned, 0
        copies = shape.halved if place.precision.bf16_products and not place.precision.bf16_weights else 0
    else:
        weights, copies = (6 if place.precision.bf16_products else 4) * learned, 0
        base = frozen + (shape.halved if place.precision.bf16_products and not place.gpu else 0)
    masters = 4 if place.precision.bf16_weights else 0
    reference = frozen if asked.rank is None else (6 if place.precision.bf16_products else 4) * learned
    return {
        "libraries": LIBRARIES + DEEPSPEED,
        "weights": base + asked.learners * weights,
        "gradients": (6 if place.precision.bf16_weights else 4) * learned,
        "optimiser": asked.learners * (8 + masters) * learned,
        "reference": asked.learners * reference if asked.reference else 0,
        "bfloat16 copies": copies,
    }


def activations_per_token(shape: Shape, place: Place, asked: Learning) -> int:
    """Count the bytes that one layer keeps of a token for its backward pass.

    With i, h, q, k the widths of the gated part, of a token, of all queries and of all keys. Float32: 4 vectors of i
    (gate, its activation, up, their product), 6 of h (input, normalised, scaled, at both norms), 2 of q (queries,
    output), keys and values. Bfloat16 products take copies in bfloat16 of their inputs, one for each of five layers,
    and norms keep float32. An adapter's norms are frozen and keep their input alone.
    """
    i, h = shape.inner, shape.width
    q, k = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    frozen = asked.rank is not None
    if not place.precision.bf16_products:
        return 4 * (4 * i + (4 if frozen else 6) * h + 2 * q + 2 * k)
    if place.precision.bf16_weights:
        return 8 * i + 16 * h + 4 * q + 4 * k
    return 8 * i + (18 if frozen else 26) * h + 4 * q + 4 * k


def activations(shape: Shape, place: Place, asked: Learning) -> int:
    """Count the bytes kept for the backward pass; with checkpointing each layer's input, and one layer whole."""
    layer = activations_per_token(shape, place, asked)
    if asked.checkpointing:
        return asked.tokens * (shape.layers * 4 * shape.width + layer)
    return asked.tokens * shape.layers * layer


def logits(shape: Shape, place: Place, asked: Learning) -> int:
    """Logits of the sampled tokens and their gradient; in float32 only a few rows at a time."""
    return 2 * asked.sampled * shape.vocabulary * place.number


def learning(shape: Shape, place: Place, asked: Learning) -> Parts:
    """An update at its peak: when the backward pass begins, with the gradient of earlier passes there."""
    return {
        **held(shape, place, asked),
        "activations": place.holes * activations(shape, place, asked),
        "logits": place.holes * logits(shape, place, asked),
        "compiled products": place.compiled,
    }


def play_between_updates(shape: Shape, place: Place, asked: Learning, play: Playing) -> Parts:
    """Play of a run that learns: what learning holds between updates, and what play takes."""
    between = held(shape, place, asked)
    return {**between, "gradients": 0, **at_play(shape, place, play)}
