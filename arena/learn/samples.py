"""Training samples, and the pairs that connect them for some losses."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agents.stream import Stream

Floats = NDArray[np.float32]
Source = Literal["played", "replayed", "logged", "demonstration"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A stream of tokens to learn from, with advantages and log-probabilities. Arrays have one entry per sampled token.

    `behaviour` is the sampler's log-probability, `learned` masks the tokens in the loss, and `source` is the origin.
    """

    stream: Stream
    advantages: Floats
    behaviour: Floats
    """Log-probabilities at sampling time."""
    temperature: float
    places: NDArray[np.int64]
    """Position of the token's turn within its trajectory, from 0."""
    learned: NDArray[np.bool_]
    """True for tokens in the loss; the others are context."""
    reference: Floats | None = None
    """Log-probabilities under the frozen reference, if a regulariser needs them."""
    teacher: Floats | None = None
    """[tokens, vocabulary], the reference's log-probabilities of all ids, if a regulariser needs them."""
    pairs: NDArray[np.int64] | None = None
    """Pair number of the token's turn, -1 for none; None if no turn is in a pair. A baseline has its sample's."""
    source: Source = "played"
    """Origin: the current weights, older ones, another run's log, or a demonstration."""
    fresh: NDArray[np.bool_] | None = None
    """True for tokens sampled by the weights before this update, if older versions may have sampled some; None means
    all."""

    def with_reference(self, logprobs: Floats) -> "Sample":
        """Return the sample with log-probabilities of the frozen reference: of its tokens, or [tokens, vocabulary]."""
        if logprobs.ndim == 1:
            return replace(self, reference=logprobs)
        ids = np.array([k for k, own in zip(self.stream.ids, self.stream.mask, strict=True) if own], np.int64)
        return replace(self, reference=np.take_along_axis(logprobs, ids[:, None], 1)[:, 0], teacher=logprobs)

    @property
    def turns(self) -> NDArray[np.int64]:
        """Index in the match of the turn that sampled each token, one per sampled token."""
        return np.array([t for t, own in zip(self.stream.turns, self.stream.mask, strict=True) if own], np.int64)


def select_complete_pairs(samples: Sequence[Sample]) -> list[Sample]:
    """Restrict the loss to replies of complete pairs, and return the samples that have such a reply.

    A pair is complete if the samples have both of its replies in the loss.
    """
    answers = [_find_loss_pairs(sample) for sample in samples]
    unique, counts = np.unique(np.concatenate([*answers, np.zeros(0, np.int64)]), return_counts=True)
    complete = unique[counts == 2]
    return [
        replace(sample, learned=_mask_replies(sample, complete))
        for sample, numbers in zip(samples, answers, strict=True)
        if np.isin(numbers, complete).any()
    ]


def group_paired(samples: Sequence[Sample]) -> list[list[int]]:
    """Group sample indices that pairs connect, and that must therefore share an optimiser step; each occurs once."""
    groups = {i: [i] for i in range(len(samples))}
    leader, seen = list(range(len(samples))), dict[int, int]()
    for i, sample in enumerate(samples):
        for number in _find_loss_pairs(sample).tolist():
            one, other = leader[seen.setdefault(number, i)], leader[i]
            if one != other:
                for member in groups[other]:
                    leader[member] = one
                groups[one] += groups.pop(other)
    return list(groups.values())


def group_with_baselines(samples: Sequence[Sample]) -> list[list[int]]:
    """Group the indices of a sample and its baselines, which are out of the loss but must share its optimiser step."""
    groups = defaultdict[int, list[int]](list)
    for i, sample in enumerate(samples):
        assert sample.pairs is not None
        groups[int(sample.pairs[0])].append(i)
    return list(groups.values())


def compute_rival_changes(samples: Sequence[Sample], changes: Sequence[Floats]) -> list[Floats]:
    """Return by sample, for each token of a paired reply, the log-ratio of the other reply; 0 for other tokens.

    A reply's log-ratio is the sum of `changes`, the log-ratios of its tokens. Both samples of every pair must be
    present.
    """
    sums = defaultdict[int, dict[int, Any]](dict)
    for i, (sample, change) in enumerate(zip(samples, changes, strict=True)):
        for number in _find_loss_pairs(sample).tolist():
            sums[number][i] = change[_mask_replies(sample, number)].sum()
    rivals = [np.zeros(len(sample.advantages), np.float32) for sample in samples]
    for number, both in sums.items():
        for (i, _), (_, rival) in zip(both.items(), reversed(both.items()), strict=True):
            rivals[i][_mask_replies(samples[i], number)] = rival
    return rivals


def _find_loss_pairs(sample: Sample) -> NDArray[np.int64]:
    """Return the numbers of the pairs that have a reply in the sample's loss."""
    return np.zeros(0, np.int64) if sample.pairs is None else np.unique(sample.pairs[_mask_replies(sample)])


def _mask_replies(sample: Sample, numbers: NDArray[np.int64] | int | None = None) -> NDArray[np.bool_]:
    """Return the mask of tokens in the loss whose reply belongs to a pair in `numbers`, or to any pair if None."""
    pairs = np.full(len(sample.learned), -1) if sample.pairs is None else sample.pairs
    return sample.learned & (pairs >= 0 if numbers is None else np.isin(pairs, numbers))
