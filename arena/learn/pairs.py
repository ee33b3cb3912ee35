"""Pairs of replies for losses that compare two samples, in any micro-batches of a step.

A loss of two replies y and y' needs only the other's log-ratio, a number without gradient: the gradient of f(δ_y -
δ_y') is f' (∇δ_y - ∇δ_y'). Each sample can contribute its own part, if both are in the same optimiser step, at the same
weights. The result does not depend on packing.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.learn.samples import Floats, Sample


def in_pairs(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with an answer whose pair is whole, and nothing else of them in the loss."""
    answers = [_answers(sample) for sample in samples]
    unique, counts = np.unique(np.concatenate([*answers, np.zeros(0, np.int64)]), return_counts=True)
    whole = unique[counts == 2]
    return [
        replace(sample, learned=_tokens(sample, whole))
        for sample, numbers in zip(samples, answers, strict=True)
        if np.isin(numbers, whole).any()
    ]


def together(samples: Sequence[Sample]) -> list[list[int]]:
    """Group the samples that have to share an optimiser step, since pairs connect them; every index once."""
    groups = {i: [i] for i in range(len(samples))}
    leader, seen = list(range(len(samples))), dict[int, int]()
    for i, sample in enumerate(samples):
        for number in _answers(sample).tolist():
            one, other = leader[seen.setdefault(number, i)], leader[i]
            if one != other:
                for member in groups[other]:
                    leader[member] = one
                groups[one] += groups.pop(other)
    return list(groups.values())


def rival_changes(samples: Sequence[Sample], changes: Sequence[Floats]) -> list[Floats]:
    """Return, per token in the loss, the log-ratio of its paired reply: Σ over that reply of `changes`.

    `changes` is log p - log p_old of each sampled token. Both samples of every pair must be present.
    """
    sums = defaultdict[int, dict[int, Any]](dict)
    for i, (sample, change) in enumerate(zip(samples, changes, strict=True)):
        for number in _answers(sample).tolist():
            sums[number][i] = change[_tokens(sample, number)].sum()
    rivals = [np.zeros(len(sample.advantages), np.float32) for sample in samples]
    for number, both in sums.items():
        for (i, _), (_, rival) in zip(both.items(), reversed(both.items()), strict=True):
            rivals[i][_tokens(samples[i], number)] = rival
    return rivals


def _answers(sample: Sample) -> NDArray[np.int64]:
    """The numbers of the pairs of which an answer is in the sample's loss."""
    return np.zeros(0, np.int64) if sample.pairs is None else np.unique(sample.pairs[_tokens(sample)])


def _tokens(sample: Sample, numbers: NDArray[np.int64] | int | None = None) -> NDArray[np.bool_]:
    """[n] which tokens in the loss belong to an answer of these pairs, or of any."""
    pairs = np.full(len(sample.learned), -1) if sample.pairs is None else sample.pairs
    return sample.learned & (pairs >= 0 if numbers is None else np.isin(pairs, numbers))
