"""Streams with random tokens, and what a model says of one by itself."""

import numpy as np
import torch

from agents.stream import Stream
from tests.factories.models import VOCABULARY


def make_stream(opening: list[int], rng: np.random.Generator, turns: int) -> Stream:
    """An opening, then `turns` times something seen and something sampled."""
    stream = Stream()
    stream.observe(opening)
    for turn in range(turns):
        stream.observe(rng.integers(0, VOCABULARY, rng.integers(0 if opening else 1, 5)).tolist())
        said = rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()
        stream.append_sampled(said, [-1.0] * len(said), turn)
        opening = opening or said
    return stream


def score_alone(model: torch.nn.Module, stream: Stream, temperature: float) -> torch.Tensor:
    """The reference: one whole forward of one stream."""
    logits = model(input_ids=torch.tensor([stream.ids])).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits, -1)
    places = [k for k, own in enumerate(stream.mask) if own]
    return torch.stack([logprobs[k - 1, stream.ids[k]] for k in places]) if places else torch.zeros(0)
