"""Samples for a trainer, and their reference scores by full forward passes."""

from typing import Literal

import numpy as np
import torch

from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from arena.config.kinds import choose
from arena.learn.samples import Sample
from arena.parts.part_config import PartConfig
from tests.factories.models import VOCABULARY

Stage = Literal[0, 1, 2, 3]
"""Of ZeRO."""
STAGES: list[Stage] = [0, 1, 2, 3]


def make_samples(model: torch.nn.Module, seed: int = 0, count: int = 6, advantage: float | None = None) -> list[Sample]:
    """Return samples with a common prefix whose behaviour policy is the model."""
    rng = np.random.default_rng(seed)
    opening = rng.integers(0, VOCABULARY, 18).tolist()
    streams = []
    for _ in range(count):
        stream = Stream()
        stream.observe(opening)
        for turn in range(rng.integers(1, 4)):
            stream.observe(rng.integers(0, VOCABULARY, rng.integers(1, 4)).tolist())
            sampled = rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()
            stream.append_sampled(sampled, [0.0] * len(sampled), turn)
        streams.append(stream)
    temperatures = [float(t) for t in rng.choice([1.0, 0.7], count)]
    behaviour = score_streams(StreamScorer(model), streams, temperatures)
    advantages = [
        rng.normal(size=s.sampled_count) if advantage is None else np.full(s.sampled_count, advantage) for s in streams
    ]
    return [
        make_sample(s, a.astype(np.float32), b, t)
        for s, a, b, t in zip(streams, advantages, behaviour, temperatures, strict=True)
    ]


def make_sample(stream: Stream, advantages: np.ndarray, behaviour: np.ndarray, temperature: float) -> Sample:
    """Return a sample with all of the stream's sampled tokens in the loss."""
    turns = [turn for turn, own in zip(stream.turns, stream.mask, strict=True) if own]
    positions = np.unique(turns, return_inverse=True)[1]
    return Sample(
        stream=stream,
        advantages=advantages,
        behaviour=behaviour,
        temperature=temperature,
        places=positions,
        learned=np.ones(len(turns), bool),
    )


def compute_plain_scores(model: torch.nn.Module, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies of a sample's tokens by one full forward pass."""
    ids = sample.stream.ids
    logprobs = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].float() / sample.temperature, -1)
    positions = [k for k, own in enumerate(sample.stream.mask) if own]
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return torch.stack([logprobs[k - 1, ids[k]] for k in positions]), torch.stack([entropy[k - 1] for k in positions])


def make_regularisers(**weight: float) -> dict[str, PartConfig]:
    """Return regularisers by name, with these weights."""
    return {name: choose("regulariser", name, weight=value) for name, value in weight.items()}
