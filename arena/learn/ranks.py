"""Reductions over ranks: no decision of an update depends on one rank's data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Rank:
    """This process's rank."""

    number: int = 0
    count: int = 1
    group: Any = None
    """Torch's process group of all ranks, for objects; None if this process learns alone."""


_own = Rank()


def become(rank: Rank) -> None:
    """Make this process one of several ranks, or one that learns alone."""
    global _own
    _own = rank


def this_rank() -> Rank:
    """Return this process's rank."""
    return _own


def over_ranks(own: Seen, plus: Callable[[Seen, Seen], Seen]) -> Seen:
    """Reduce the ranks' values in rank order, with the same result on all ranks."""
    if _own.count == 1:
        return own
    from torch.distributed import all_gather_object

    seen = [own] * _own.count
    all_gather_object(seen, own, _own.group)
    return reduce(plus, seen)


@dataclass(frozen=True)
class Tally:
    """Count, sum and maximum of numbers, to be combined over ranks."""

    count: int = 0
    total: float = 0.0
    maximum: float = 0.0

    @staticmethod
    def of(parts: Sequence[np.ndarray]) -> "Tally":
        """Tally the absolute values of float32 arrays."""
        if not parts:
            return Tally()
        size = np.abs(np.concatenate(parts))
        return Tally(len(size), float(size.sum()), float(size.max()))

    def plus(self, other: "Tally") -> "Tally":
        """Return the tally of both; NaN on either side stays NaN."""
        maximum = math.nan if math.isnan(self.maximum + other.maximum) else max(self.maximum, other.maximum)
        return Tally(self.count + other.count, self.total + other.total, maximum)

    @property
    def mean(self) -> float:
        """The mean; 0 if empty."""
        return self.total / max(1, self.count)


def highest(own: float) -> float:
    """Return the largest of all ranks' norms; not finite if one of them is not."""
    return over_ranks(Tally(1, own, own), Tally.plus).maximum
