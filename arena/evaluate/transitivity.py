"""Distance of "who beats whom" from a ranking: cycles, and the rotational part of the payoffs.

Everything is about A, the antisymmetric part of the payoffs: A[i, j] > 0 where i gets more against j than j against
i. Its Hodge decomposition (Balduzzi et al. 2018, "Re-evaluating Evaluation") is A = T + R, where T[i, j] =
f[i] - f[j] with f the row means is what ratings can explain, and R, orthogonal to it, is what turns in circles:
all of A in rock-paper-scissors, nothing where one number per contender explains all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from arena.statistics import Interval


@dataclass(frozen=True)
class Cycle:
    """Three contenders, each beating the next, and how sure that is."""

    names: tuple[str, str, str]
    probability: float
    """The share of resampled tournaments in which it holds."""


@dataclass(frozen=True)
class Transitivity:
    """Intervals are percentiles over resampled tournaments. Noise makes cycles: both figures are biased upwards."""

    cycles: list[Cycle]
    """Those that hold as played, or in more than one of ten resampled tournaments; the surest first."""
    intransitive: Interval
    """Share of all triples that are cycles."""
    rotational: Interval
    """|R|² / |A|²: 0 for a ranking, 1 for rock-paper-scissors."""


def antisymmetric(payoffs: np.ndarray) -> np.ndarray:
    """A [..., n, n]: half of what row gets more against column than column against row."""
    return np.asarray((payoffs - np.swapaxes(payoffs, -1, -2)) / 2)


def rotational_share(payoffs: np.ndarray) -> np.ndarray:
    """|R|² / |A|² of payoffs [..., n, n]; 0 where nobody beats anybody."""
    a = antisymmetric(payoffs)
    f = a.mean(-1)
    rest = a - (f[..., :, None] - f[..., None, :])
    whole = (a**2).sum((-1, -2))
    return np.where(whole > 0, (rest**2).sum((-1, -2)) / np.where(whole > 0, whole, 1.0), 0.0)


def cyclic(payoffs: np.ndarray) -> dict[tuple[int, int, int], np.ndarray]:
    """Triples in the order of beating, (i, j, k) or (i, k, j), with whether each beats the next: bool [...]."""
    above = antisymmetric(payoffs) > 1e-12
    cycles = {}
    for i, j, k in combinations(range(payoffs.shape[-1]), 3):
        for a, b, c in ((i, j, k), (i, k, j)):
            cycles[a, b, c] = above[..., a, b] & above[..., b, c] & above[..., c, a]
    return cycles


def transitivity(names: Sequence[str], payoffs: np.ndarray, drawn: np.ndarray, level: float = 0.95) -> Transitivity:
    """From payoffs [n, n] of row against column, and the same of resampled tournaments [B, n, n]."""
    as_played, resampled = cyclic(payoffs), cyclic(drawn)
    triples = len(as_played) // 2
    cycles = [
        Cycle((names[i], names[j], names[k]), float(holds.mean()))
        for (i, j, k), holds in resampled.items()
        if as_played[i, j, k] or holds.mean() > 0.1
    ]
    share = sum(holds.astype(float) for holds in resampled.values()) / max(1, triples)
    observed = sum(map(bool, as_played.values())) / max(1, triples)
    return Transitivity(
        sorted(cycles, key=lambda cycle: -cycle.probability),
        _interval(observed, np.broadcast_to(share, len(drawn)), level),
        _interval(float(rotational_share(payoffs)), rotational_share(drawn), level),
    )


def _interval(estimate: float, values: np.ndarray, level: float) -> Interval:
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return Interval(estimate, float(low), float(high))
