"""Tests of a study's differences: p-values of single comparisons, over several looks, and over a family of studies.

The p-value of a comparison is that of its interval (`arena.statistics.paired_ci`): the level at which the interval just
touches what is asked for. So a verdict by intervals and one by p-values are the same verdict.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, nan, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import false_discovery_control, nct, norm, t

from arena.statistics import ANY, Bounds


class Tails(NamedTuple):
    """One-sided p-values of a mean: that it is not above a value, and that it is not below it."""

    above: float
    below: float


def tails(differences: Sequence[float], bounds: Bounds, value: float = 0.0) -> Tails:
    """P-values of the mean of differences, each within `bounds`, against a value; 1 where there are fewer than two.

    Without bounds, Student's. Within bounds the interval's ends are all m with (mean - m)² ≤ reach · m (1 - m), both as
    shares of the range, with reach = min(t² d, z²) / n and d the dispersion; solved for t and z at m = value.
    """
    n = len(differences)
    if n < 2:
        return Tails(1.0, 1.0)
    mean, error = fmean(differences), stdev(differences) / sqrt(n)
    small = _two_sided(mean, error, n, bounds, value) / 2.0
    return Tails(small, 1.0 - small) if mean > value else Tails(1.0 - small, small)


def _two_sided(mean: float, error: float, n: int, bounds: Bounds, value: float) -> float:
    low, high = bounds
    if mean == value:
        return 1.0
    if bounds == ANY or (error < _NOTHING and mean not in bounds):
        return 0.0 if error < _NOTHING else float(2.0 * t.sf(abs(mean - value) / error, n - 1))
    if not low < value < high:
        return 0.0  # no mean of values that differ from it is there
    share, at = (mean - low) / (high - low), (value - low) / (high - low)
    reach = (share - at) ** 2 / (at * (1.0 - at))
    dispersion = n * (error / (high - low)) ** 2 / (share * (1.0 - share)) if 0.0 < share < 1.0 else 1.0
    by_t = 2.0 * t.sf(sqrt(n * reach / dispersion), n - 1) if dispersion > 0 else 0.0
    return float(min(by_t, 2.0 * norm.sf(sqrt(n * reach))))


_NOTHING = 1e-15


# -- several looks at one study ------------------------------------------------------------------------------


def sample_sizes(seeds: int, looks: int) -> list[int]:
    """Return the numbers of seeds after which a study is looked at: equal parts, rounded up, all of them last."""
    return [ceil(seeds * k / looks) for k in range(1, looks + 1)]


def over_looks(p: float, look: int, looks: int) -> float:
    """The p-value of a two-sided p at a look, number `look` of `looks` equally far apart.

    It is the least level at which O'Brien and Fleming's bounds (1979), z_k = C √(looks / k), would be crossed there
    (Jennison and Turnbull 2000, ch. 9: repeated p-values); p itself where one look is all.
    """
    if looks == 1 or p >= 1.0:
        return p
    return exceeded(float(norm.isf(p / 2.0)) * sqrt(look / looks), looks)


@lru_cache(256)
def level_at(level: float, look: int, looks: int) -> float:
    """Return the level of the intervals at a look, so that over all looks they err as often as one of `level` would."""
    if looks == 1:
        return level
    bound = brentq(lambda c: exceeded(c, looks) - (1.0 - level), 0.5, 6.0, xtol=1e-6)
    return float(1.0 - 2.0 * norm.sf(bound * sqrt(looks / look)))


@lru_cache(4096)
def exceeded(bound: float, looks: int) -> float:
    """Chance that under the null |Z_k| √(k / looks) exceeds the bound at any look.

    S_k = √k Z_k is a walk of standard normal steps, so that the bound is the same at each: b = bound · √looks. The
    density of walks that have stayed within ±b is carried on from look to look (Armitage, McPherson and Rowe 1969), by
    Gauss and Legendre's quadrature.
    """
    if bound > _BEYOND:
        return 0.0
    reach = bound * sqrt(looks)
    nodes, weights = (reach * of for of in _LEGENDRE)
    inside = norm.pdf(nodes)
    for _ in range(looks - 1):
        inside = norm.pdf(nodes[:, None] - nodes) @ (weights * inside)
    return float(min(1.0, max(0.0, 1.0 - weights @ inside)))


_BEYOND = 10.0
_LEGENDRE = np.polynomial.legendre.leggauss(96)


# -- a family of studies -------------------------------------------------------------------------------------


def holm(ps: Sequence[float]) -> list[float]:
    """P-values corrected for as many tests: rejecting those of at most α errs at all with chance α (Holm 1979).

    The k-th smallest of m times (m - k + 1), none below the one before it.
    """
    order, corrected, highest = sorted(range(len(ps)), key=lambda i: ps[i]), [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = highest
    return corrected


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """P-values corrected so that of those of at most α a share of α is wrong on average (Benjamini, Hochberg 1995)."""
    return [float(p) for p in false_discovery_control(ps)] if ps else []


@lru_cache(4096)
def smallest_difference(deviation: float, n: int, level: float = 0.95, power: float = 0.8) -> float:
    """The mean difference that n seeds would find with this chance, where differences by seed deviate so much.

    By the noncentral t distribution, two-sided at 1 - level; NaN for fewer than two seeds.
    """
    if n < 2:
        return nan
    bound = float(t.isf((1.0 - level) / 2.0, n - 1))
    found = brentq(lambda delta: float(nct.sf(bound, n - 1, delta)) - power, 0.0, bound + 40.0)
    return float(found * deviation / sqrt(n))
