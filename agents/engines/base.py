"""Interface of inference engines: sample replies, score streams, publish weights."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from agents.errors import ContextFull
from agents.precision import Precision
from agents.published import Weights
from agents.role import MIN_TEMPERATURE
from agents.stream import MediaSpan, Stream, compute_keys


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for one sampled reply of a policy. `ids` is the full context of one seat's stream."""

    policy: str
    ids: tuple[int, ...]
    key: str
    """Name of the stream, under which an engine may keep its attention cache between turns."""
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    stop_ids: frozenset[int]
    seed: tuple[int, ...]
    """Entropy of this reply's random generator. The same seed gives the same draws in any batch."""
    entropy: bool = False
    """Whether to return entropies even if the engine does not by default."""
    media: tuple[MediaSpan, ...] = ()
    """Images of the context, for an engine and a policy with vision."""

    def __post_init__(self) -> None:
        """Raise ValueError for invalid values, because in a batch they would fail other requests, too."""
        if not self.ids or self.max_tokens < 1:
            raise ValueError("a request needs a context, and max_tokens of at least 1")
        if self.temperature != 0 and not MIN_TEMPERATURE <= self.temperature < math.inf:
            raise ValueError(f"temperature {self.temperature} is not 0, or a number from {MIN_TEMPERATURE} on")
        if not 0 < self.top_p <= 1 or not 0 <= self.top_k < 2**31:
            raise ValueError(f"top_p {self.top_p} or top_k {self.top_k} is out of range")
        if min(self.seed, default=0) < 0:
            raise ValueError(f"seed {self.seed} is negative")
        _ = self.keys  # raises ValueError for images outside the context

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """The ids, with distinct negative integers in place of images' placeholders; see `compute_keys`."""
        return tuple(compute_keys(self.ids, self.media)) if self.media else self.ids

    def check(self, vocabulary: int, positions: int) -> None:
        """Raise ValueError if the context has a token id outside the model's vocabulary of size `vocabulary`.

        Raises ContextFull if the context with its longest reply exceeds `positions` tokens.
        """
        if min(self.ids) < 0 or max(self.ids) >= vocabulary:
            invalid = next(id for id in self.ids if not 0 <= id < vocabulary)
            raise ValueError(f"token id {invalid} is not in the model's vocabulary of {vocabulary}")
        if len(self.ids) + self.max_tokens > positions:
            raise ContextFull.of(len(self.ids), self.max_tokens, positions)


@dataclass(frozen=True)
class Completion:
    """A sampled reply: ids (with the stop id, if any), their natural-log probabilities, and the version of the weights.

    `finish` is "stop" if a stop id ended it, "length" if the token limit did.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probabilities under the sampling distribution: after temperature, top-k and top-p."""
    finish: Literal["stop", "length"]
    version: int
    entropy: tuple[float, ...] | None = None
    """Entropy in nats of that distribution for each id; None if it was not measured."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Capabilities and needs of a class of engines. Callers ask for these and never compare an engine's kind."""

    has_vision: bool = False
    """Whether models see the images of a context."""
    serves_adapters: bool = False
    """Whether it serves adapters, not only full weights."""
    serves_several: bool = False
    """Whether it serves several policies at once."""
    records_entropy: bool = False
    """Whether it can report the entropy of each token's distribution."""
    is_batch_invariant: bool = False
    """Whether a reply is bit-identical in any batch."""
    batches_continuously: bool = False
    """Whether requests join a running batch, so that they need not be collected."""
    needs_folder: bool = False
    """Whether published weights are written to a folder in memory, from which it loads them."""
    receives: bool = False
    """Whether its processes can receive weights in place, by the methods of `ReceivingEngine`."""
    has_own_process: bool = False
    """Whether each base model has its own process, which takes time to start and memory."""
    uses_several_gpus: bool = False
    """Whether it computes one model on several GPUs."""
    limits_context: bool = False
    """Whether `max_model_len` limits its contexts."""
    package: str = ""
    """Import name of a package that it needs and Arena does not require; "" for none."""
    install: str = ""
    """How to install that package."""


class EngineSettings(Protocol):
    """Settings that an engine may use; see `agents.engines.spec.EngineSpec`."""

    @property
    def max_batch(self) -> int: ...
    @property
    def cache_mb(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def max_loras(self) -> int: ...
    @property
    def entropy(self) -> bool: ...


class EngineClass(Protocol):
    """Protocol of the classes listed in `agents.engines.kinds`."""

    capabilities: Capabilities

    def create(self, settings: EngineSettings, precision: Precision, gpus: int) -> "Engine":
        """Create an engine, not yet open, that computes in `precision`; `gpus` is the number of GPUs for one model."""


class Engine(Protocol):
    """Protocol of inference engines for named policies, usable from `open` to `close`. Slow calls are coroutines."""

    capabilities: Capabilities
    max_context: int
    """Maximum tokens of a context with its reply that the engine supports for any model."""

    async def open(self) -> None:
        """Start the engine; called once, in the event loop that will use it."""

    async def close(self) -> None:
        """Stop the engine; no call may follow. Closing twice, or before `open`, does nothing."""

    def figures(self) -> dict[str, float]:
        """Return counters by name, which only grow; `seconds` is the wall time of decoding and scoring."""

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a reply for each request; return the completions in the same order.

        Raises KeyError for a policy without published weights, the errors of `Request.check`, and EngineError if the
        engine's own library fails.
        """

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        """Compute the log-probabilities of streams under a policy's weights: per stream a float32 array.

        The array has one value per sampled token, at the stream's sampling temperature, or with `full_vocabulary` one
        row of values for all ids.
        """

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Serve this version of a policy from now on, and drop caches made with older weights."""

    async def release(self, policy: str) -> None:
        """Free memory that the next `publish` of the policy rebuilds, because its weights are about to change."""

    async def retire(self, policy: str) -> None:
        """Stop serving a policy and free its weights and caches."""

    def forget(self, key: str) -> None:
        """Drop the attention cache of a finished stream. `key` is the stream's name in requests."""


class ReceivingEngine(Engine, Protocol):
    """Protocol of engines whose processes can receive a trained policy's full weights in place."""

    async def expect(self, policy: str, folder: Path, names: Set[str]) -> int:
        """Prepare to `receive` tensors of these names for a full model with the architecture of `folder`'s.

        Returns the number of processes that will receive, or 0 if the weights must be published instead.
        """

    async def receive(self, policy: str, version: int, function: str, arguments: Mapping[str, Any]) -> None:
        """Load a version of a policy from the names and tensors that a function yields in the engine's processes.

        `function` is a name for `pkgutil.resolve_name`, called with the number of the process and `arguments`, which
        must fit in JSON. Raises EngineError; the weights may then be of two versions until a later call succeeds.
        """
