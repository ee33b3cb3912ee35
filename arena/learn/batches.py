"""Micro-batches: tokens of some samples with their current scores, the input of losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from arena.learn.samples import Floats, Sample
from arena.parts.schedules import Clock

if TYPE_CHECKING:
    import torch

    from agents.scoring import Scores, StreamBatch

Level = Literal["token", "turn", "sequence"]
"""Unit that shares an importance ratio: a token, a turn's tokens, or a stream's tokens."""


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """The N sampled tokens of a micro-batch, the input of losses and regularisers. Streams and turns are complete.

    Three log-probabilities are separate arrays: `behaviour` is the sampler's, `old` the trainer's at the start of the
    update, `logprobs` the trainer's current one. All float tensors are [N] float32, logs natural. `learned` masks the
    tokens in the loss; `turns` and `streams` number each token's turn and stream.
    """

    logprobs: torch.Tensor
    """The trainer's current log-probabilities, with gradient."""
    entropy: torch.Tensor
    """Entropy in nats of each token's distribution, with gradient."""
    old: torch.Tensor
    behaviour: torch.Tensor
    advantages: torch.Tensor
    turns: torch.Tensor
    """[N] int64, number of each token's turn in the batch, from 0 without gaps."""
    streams: torch.Tensor
    """[N] int64, number of each token's stream in the batch, from 0 without gaps."""
    places: torch.Tensor
    """[N] int64, position of the token's turn within its trajectory."""
    learned: torch.Tensor
    """[N] bool, True for tokens in the loss."""
    replayed: torch.Tensor | None = None
    """[N] bool, True for tokens of an earlier iteration; None means no token."""
    reference: torch.Tensor | None = None
    divergence: torch.Tensor | None = None
    """KL of each token's whole distribution to the reference's, with gradient, if a regulariser needs it."""
    rivals: torch.Tensor | None = None
    """Summed log-ratio, log p - log p_old, of the paired reply, for losses on pairs."""
    clock: Clock = Clock()
    memory: Mapping[str, Any] = field(default_factory=dict)
    """Read-only state of regularisers from earlier updates, as JSON by name; `arena.learn.regularisers.Memory` updates
    it."""

    def units(self, level: Level) -> torch.Tensor:
        """Return each token's unit number, [N] int64.

        It is the token's own for "token", its turn's for "turn", and its stream's for "sequence".
        """
        import torch

        if level == "token":
            return torch.arange(len(self.learned), device=self.learned.device)
        return self.turns if level == "turn" else self.streams

    def sum_by(self, units: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return for each token the sum of `values` over the tokens of its unit that are in the loss, [N]."""
        masked = values.masked_fill(~self.learned, 0.0)
        return masked.new_zeros(len(units)).index_add(0, units, masked)[units]  # unit numbers are less than N

    def mean_by(self, units: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return for each token the mean of `values` over its unit's tokens in the loss, [N]; 0 without any."""
        return self.sum_by(units, values) / self.sum_by(units, values.new_ones(len(values))).clamp(min=1.0)


def make_token_batch(
    batch: StreamBatch,
    scores: Scores,
    samples: Mapping[int, Sample] | Sequence[Sample],
    old: Mapping[int, Floats] | Sequence[Floats] | None,
    clock: Clock,
    memory: Mapping[str, Any],
    rivals: Mapping[int, Floats] | None = None,
) -> TokenBatch:
    """Collect the tokens of a scored `StreamBatch` for losses and regularisers.

    `batch.index`, `old` and `rivals` refer to `samples` by number. `old` are log-probabilities at the start of the
    update; None means the current ones. `rivals` are the log-ratios of paired replies.
    """
    import torch

    device = scores.logprobs.device
    batch_samples = [samples[i] for i in batch.index]

    def to_tensor(arrays: Sequence[NDArray[Any]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    streams = np.repeat(np.arange(len(batch_samples)), [len(s.advantages) for s in batch_samples])
    turns = np.unique(
        np.stack([streams, np.concatenate([s.turns for s in batch_samples])]), axis=1, return_inverse=True
    )[1]
    references = [s.reference for s in batch_samples if s.reference is not None]
    return TokenBatch(
        logprobs=scores.logprobs,
        entropy=scores.entropy,
        old=scores.logprobs.detach() if old is None else to_tensor([old[i] for i in batch.index]).float(),
        behaviour=to_tensor([s.behaviour for s in batch_samples]).float(),
        advantages=to_tensor([s.advantages for s in batch_samples]).float(),
        turns=to_tensor([turns.reshape(-1).astype(np.int64)]),
        streams=to_tensor([streams]),
        places=to_tensor([s.places for s in batch_samples]),
        learned=to_tensor([s.learned for s in batch_samples]),
        replayed=to_tensor([np.full(len(s.advantages), s.source == "replayed") for s in batch_samples]),
        reference=to_tensor(references).float() if len(references) == len(batch_samples) else None,
        divergence=scores.divergence,
        rivals=None if rivals is None else to_tensor([rivals[i] for i in batch.index]),
        clock=clock,
        memory=memory,
    )
