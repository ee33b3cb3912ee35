"""Streams with random tokens, and their reference scores."""

import numpy as np
import torch

from agents.stream import Stream
from tests.factories.models import VOCABULARY


def make_stream(opening: list[int], rng: np.random.Generator, turns: int) -> Stream:
    """Return a stream of the opening and `turns` turns of observed and sampled tokens."""
    stream = Stream()
    stream.observe(opening)
    for turn in range(turns):
        stream.observe(rng.integers(0, VOCABULARY, rng.integers(0 if opening else 1, 5)).tolist())
        sampled = rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()
        stream.append_sampled(sampled, [-1.0] * len(sampled), turn)
        opening = opening or sampled
    return stream


def score_alone(model: torch.nn.Module, stream: Stream, temperature: float) -> torch.Tensor:
    """Return the log-probabilities of one stream's sampled tokens by one full forward pass."""
    logits = model(input_ids=torch.tensor([stream.ids])).logits[0].float() / temperature
    logprobs = torch.log_softmax(logits, -1)
    positions = [k for k, own in enumerate(stream.mask) if own]
    return torch.stack([logprobs[k - 1, stream.ids[k]] for k in positions]) if positions else torch.zeros(0)
