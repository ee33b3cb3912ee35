"""The interface of engines: sample replies, score streams, publish new weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from agents.published import Weights
from agents.stream import Stream


@dataclass(frozen=True)
class Request:
    """One reply to sample: `ids` is the whole context of one seat's stream so far."""

    policy: str
    ids: tuple[int, ...]
    key: str
    """Names the stream, so that an engine may keep its attention cache from turn to turn."""
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    stop_ids: frozenset[int]
    seed: tuple[int, ...]
    """Entropy of this reply's own random generator: the same seed draws the same numbers in any batch."""
    entropy: bool = False
    """Whether the completion is to tell entropies, whatever the engine does otherwise."""


@dataclass(frozen=True)
class Completion:
    """A sampled reply: its ids (stop id included), natural-log probabilities, and the weights' version."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Under the distribution sampled from: after temperature, top-k and top-p."""
    finish: Literal["stop", "length"]
    version: int
    entropy: tuple[float, ...] | None = None
    """Entropy of that distribution before each of the ids, in nats; None where nobody measured it."""


class Engine(Protocol):
    """An engine: serves tokens for named policies, from `open` until `close`; slow calls are coroutines."""

    max_context: int
    """The most tokens of a context and its reply that it serves, whatever a model's positions."""

    async def open(self) -> None:
        """Start whatever the engine needs to run; called once, in the event loop that will ask it."""

    async def close(self) -> None:
        """Stop the engine; no call may follow. Closing twice, or before `open`, does nothing."""

    def figures(self) -> dict[str, float]:
        """Counters that only grow; `seconds` is wall time spent in decoding and scoring."""

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion per request, in order."""

    async def score(self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
        """Log-probabilities (float32, one per sampled token) of each stream under the policy's weights."""

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Serve a policy's version under that name from now on; every cache made with an older one is dropped."""

    async def release(self, policy: str) -> None:
        """Release what the next `publish` of a policy rebuilds: its weights are about to change."""

    async def retire(self, policy: str) -> None:
        """Stop serving that name, and release its weights and caches."""

    def forget(self, key: str) -> None:
        """Drop the cache of a stream that has ended."""
