"""Reductions over ranks, so that no decision of an update depends on one rank's data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")


@dataclass(frozen=True)
class Rank:
    """Identity of a process among those that train together: its number, from 0, and their count."""

    number: int = 0
    count: int = 1
    group: Any = None
    """Torch's process group of all ranks, for objects; None for a single rank."""


_rank = Rank()


def set_rank(rank: Rank) -> None:
    """Set this process's rank."""
    global _rank
    _rank = rank


def get_rank() -> Rank:
    """Return this process's rank: the one that `set_rank` set, or number 0 of 1."""
    return _rank


def reduce_over_ranks(value: Value, plus: Callable[[Value, Value], Value]) -> Value:
    """Combine the values of all ranks with `plus`, in rank order; returns the same result on all ranks.

    All ranks must call it together. A single rank gets its own value.
    """
    if _rank.count == 1:
        return value
    from torch.distributed import all_gather_object

    seen = [value] * _rank.count
    all_gather_object(seen, value, _rank.group)
    return reduce(plus, seen)


@dataclass(frozen=True)
class Tally:
    """Count, sum and maximum of absolute values, which can be combined over ranks."""

    count: int = 0
    total: float = 0.0
    maximum: float = 0.0

    @staticmethod
    def of(parts: Sequence[np.ndarray]) -> "Tally":
        """Return the tally of the absolute values in float32 arrays."""
        if not parts:
            return Tally()
        size = np.abs(np.concatenate(parts))
        return Tally(len(size), float(size.sum()), float(size.max()))

    def plus(self, other: "Tally") -> "Tally":
        """Return the tally of both; its maximum is NaN if either is."""
        maximum = math.nan if math.isnan(self.maximum + other.maximum) else max(self.maximum, other.maximum)
        return Tally(self.count + other.count, self.total + other.total, maximum)

    @property
    def mean(self) -> float:
        """Mean of the values; 0 if there are none."""
        return self.total / max(1, self.count)


def max_over_ranks(norm: float) -> float:
    """Return the largest of all ranks' norms; infinite or NaN if one of them is."""
    return reduce_over_ranks(Tally(1, norm, norm), Tally.plus).maximum
