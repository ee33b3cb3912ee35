"""A minimal second engine: it computes the full context for every token, without caches or batches."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.computing import compute
from agents.engines.base import Capabilities, Completion, EngineSettings, Request
from agents.engines.sampling import SamplingSettings, compute_distributions, draw_tokens
from agents.layouts import create_vision
from agents.policy import load_module
from agents.precision import Precision
from agents.published import Weights
from agents.scoring import StreamScorer, score_distributions, score_streams
from agents.stream import Stream
from agents.vision import ban_placeholder

PLACE = "tests.factories.toy_engine"


class ToyEngine:
    """Engine of full weights that samples one token of one reply at a time."""

    capabilities = Capabilities(serves_several=True, is_batch_invariant=True)
    max_context = sys.maxsize

    def __init__(self) -> None:
        self._served: dict[str, tuple[int, Any]] = {}

    @classmethod
    def create(cls, settings: EngineSettings, precision: Precision, gpus: int) -> "ToyEngine":
        return cls()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        self._served.clear()

    def figures(self) -> dict[str, float]:
        return {"seconds": 0.0}

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        served = weights.unwrap()
        self._served[policy] = version, load_module(served, frozen=True) if isinstance(served, Path) else served

    async def release(self, policy: str) -> None:
        pass

    async def retire(self, policy: str) -> None:
        self._served.pop(policy, None)

    def forget(self, key: str) -> None:
        pass

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        scorer = StreamScorer(self._served[policy][1], False)
        return await compute(score_distributions if full_vocabulary else score_streams, scorer, streams, temperatures)

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [await compute(self._sample, request) for request in requests]

    def _sample(self, request: Request) -> Completion:
        version, model = self._served[request.policy]
        text = model.config.get_text_config()
        request.check(text.vocab_size, text.max_position_embeddings)
        pixels = _pixels(model, request)
        shape = SamplingSettings(request.temperature, request.top_k, request.top_p)
        draws = np.random.Generator(np.random.PCG64(request.seed)).random(request.max_tokens)
        ids, logprobs = list[int](), list[float]()
        for draw in draws:
            with torch.no_grad():
                logits = model(torch.tensor([[*request.ids, *ids]]), **pixels).logits[0, -1:].float()
            logits = ban_placeholder(model.config, logits)
            chances = compute_distributions(logits, [shape])
            ids.append(int(draw_tokens(chances.exp(), torch.tensor([0]), torch.tensor([draw], dtype=torch.double))))
            logprobs.append(float(chances[0, ids[-1]]))
            if ids[-1] in request.stop_ids:
                return Completion(tuple(ids), tuple(logprobs), "stop", version)
        return Completion(tuple(ids), tuple(logprobs), "length", version)


def _pixels(model: Any, request: Request) -> dict[str, torch.Tensor]:
    """Return the images as transformers' forward pass takes them: [1, M, 3, size, size]."""
    vision = create_vision(model.config)
    if vision is None or not request.media:
        return {}
    return {"pixel_values": torch.stack([vision.scale_image(span.data) for span in request.media])[None]}


class OnlyOne(ToyEngine):
    """Engine that serves one policy."""

    capabilities = Capabilities(serves_adapters=True)


class Elsewhere(ToyEngine):
    """Engine with a process of its own."""

    capabilities = Capabilities(serves_adapters=True, serves_several=True, has_own_process=True)


class Seeing(ToyEngine):
    """Engine that supports images."""

    capabilities = Capabilities(serves_several=True, has_vision=True)


class Uninstalled(ToyEngine):
    """Engine that needs a package that does not exist."""

    capabilities = Capabilities(package="no_such_engine", install="pip install no-such-engine")
