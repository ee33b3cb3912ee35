"""What an update learns from: samples, one per stream, and the micro-batches of their tokens that losses see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from agents.stream import Stream
from arena.config.schedules import Clock

if TYPE_CHECKING:
    from agents.scoring import Scores, StreamBatch

Floats = NDArray[np.float32]
Level = Literal["token", "turn", "sequence"]
"""What shares one ratio: a token alone, the tokens of a turn, or those of a stream."""


@dataclass(frozen=True)
class Sample:
    """A stream to learn from; arrays have one entry per sampled token."""

    stream: Stream
    advantages: Floats
    behaviour: Floats
    """Log-probabilities at sampling time."""
    temperature: float
    places: NDArray[np.int64]
    """The number of the token's turn within its trajectory, from 0."""
    learned: NDArray[np.bool_]
    """Whether the token is in the loss; the others are context."""
    reference: Floats | None = None
    """Log-probabilities under the frozen reference, when a regulariser asks for them."""
    pairs: NDArray[np.int64] | None = None
    """The number of the pair of answers that the token's turn is in, -1 where it is in none; None is nowhere."""
    source: Literal["played", "replayed", "shown"] = "played"
    """`played` by the current weights, `replayed` from older ones, or `shown` to be imitated."""

    def with_reference(self, logprobs: Floats) -> "Sample":
        """The same sample with the reference's view of it."""
        return replace(self, reference=logprobs)

    @property
    def turns(self) -> NDArray[np.int64]:
        """Index in the match of the turn that sampled each token."""
        return np.array([t for t, own in zip(self.stream.turns, self.stream.mask, strict=True) if own], np.int64)


@dataclass(frozen=True)
class TokenBatch:
    """The N sampled tokens of a micro-batch as losses and regularisers see them; whole streams, so whole turns.

    Three log-probabilities are three things: `behaviour` is the sampler's, `old` the trainer's at the start of the
    update, `logprobs` the trainer's now. All float tensors are [N] float32, logs natural.
    """

    logprobs: torch.Tensor
    """With gradient."""
    entropy: torch.Tensor
    """Nats of the distribution each token was drawn from, with gradient."""
    old: torch.Tensor
    behaviour: torch.Tensor
    advantages: torch.Tensor
    turns: torch.Tensor
    """[N] int64, the number of each token's turn among those of the batch, from 0 without gaps."""
    streams: torch.Tensor
    """[N] int64, the number of each token's stream among those of the batch, from 0 without gaps."""
    places: torch.Tensor
    """[N] int64, the number of the token's turn within its trajectory."""
    learned: torch.Tensor
    """[N] bool, whether the token is in the loss."""
    replayed: torch.Tensor | None = None
    """[N] bool, whether the token comes from an earlier iteration; None is nowhere."""
    reference: torch.Tensor | None = None
    rivals: torch.Tensor | None = None
    """The summed log-ratio, log p - log p_old, of the other answer of the token's pair, when a loss asks for it."""
    clock: Clock = Clock()
    memory: dict[str, Any] = field(default_factory=dict)
    """What regularisers remember from iteration to iteration, as JSON under their names; kept in the checkpoint."""

    def units(self, level: Level) -> torch.Tensor:
        """[N] int64, the number of each token's own token, turn or stream."""
        if level == "token":
            return torch.arange(len(self.learned), device=self.learned.device)
        return self.turns if level == "turn" else self.streams

    def sum_by(self, units: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """[N] the sum over those tokens of each one's unit that are in the loss."""
        own = torch.where(self.learned, values, torch.zeros_like(values))
        return own.new_zeros(len(units)).index_add(0, units, own)[units]  # no unit's number is beyond the tokens'

    def mean_by(self, units: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """[N] the mean over those tokens of each one's unit that are in the loss; 0 where there are none."""
        return self.sum_by(units, values) / self.sum_by(units, torch.ones_like(values)).clamp(min=1.0)


def token_batch(
    batch: "StreamBatch",
    scores: "Scores",
    samples: Sequence[Sample],
    old: Sequence[Floats] | None,
    clock: Clock,
    memory: dict[str, Any],
    rivals: Mapping[int, Floats] | None = None,
) -> TokenBatch:
    """The tokens of some of the samples with what the current weights say of them; without `old`, that is old too."""
    device = scores.logprobs.device
    chosen = [samples[i] for i in batch.index]

    def along(arrays: Sequence[NDArray[Any]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    streams = np.repeat(np.arange(len(chosen)), [len(s.advantages) for s in chosen])
    turns = np.unique(np.stack([streams, np.concatenate([s.turns for s in chosen])]), axis=1, return_inverse=True)[1]
    references = [s.reference for s in chosen if s.reference is not None]
    return TokenBatch(
        logprobs=scores.logprobs,
        entropy=scores.entropy,
        old=scores.logprobs.detach() if old is None else along([old[i] for i in batch.index]).float(),
        behaviour=along([s.behaviour for s in chosen]).float(),
        advantages=along([s.advantages for s in chosen]).float(),
        turns=along([turns.reshape(-1).astype(np.int64)]),
        streams=along([streams]),
        places=along([s.places for s in chosen]),
        learned=along([s.learned for s in chosen]),
        replayed=along([np.full(len(s.advantages), s.source == "replayed") for s in chosen]),
        reference=along(references).float() if len(references) == len(chosen) else None,
        rivals=None if rivals is None else along([rivals[i] for i in batch.index]),
        clock=clock,
        memory=memory,
    )
