"""P-values of a study's comparisons, corrections over a family of studies, and statistical power.

The p-value of a comparison is the level at which its interval (`arena.statistics.paired_ci`) just touches the required
difference. So verdicts by intervals and by p-values agree.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import nan, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.stats import false_discovery_control, nct, norm, t

from arena.statistics import ANY, Bounds

_NEGLIGIBLE = 1e-15


class Tails(NamedTuple):
    """One-sided p-values: a small `above` is evidence for a mean above the value, a small `below` for one below it."""

    above: float
    below: float


def compute_tails(differences: Sequence[float], bounds: Bounds, value: float = 0.0) -> Tails:
    """Return one-sided p-values for the mean of differences against `value`; 1 for fewer than two differences.

    Each difference is within `bounds`. Without bounds the test is Student's. Within bounds the interval has all m with
    (mean - m)² ≤ reach · m (1 - m), both as shares of the range, with reach = min(t² d, z²) / n and d the dispersion.
    This solves for t and z at m = value.
    """
    n = len(differences)
    if n < 2:
        return Tails(1.0, 1.0)
    mean, error = fmean(differences), stdev(differences) / sqrt(n)
    small = _two_sided_p_value(mean, error, n, bounds, value) / 2.0
    return Tails(small, 1.0 - small) if mean > value else Tails(1.0 - small, small)


def _two_sided_p_value(mean: float, error: float, n: int, bounds: Bounds, value: float) -> float:
    low, high = bounds
    if mean == value:
        return 1.0
    if bounds == ANY or (error < _NEGLIGIBLE and mean not in bounds):
        return 0.0 if error < _NEGLIGIBLE else float(2.0 * t.sf(abs(mean - value) / error, n - 1))
    if not low < value < high:
        return 0.0  # values that differ from a bound cannot have their mean there
    share, at = (mean - low) / (high - low), (value - low) / (high - low)
    reach = (share - at) ** 2 / (at * (1.0 - at))
    dispersion = n * (error / (high - low)) ** 2 / (share * (1.0 - share)) if 0.0 < share < 1.0 else 1.0
    by_t = 2.0 * t.sf(sqrt(n * reach / dispersion), n - 1) if dispersion > 0 else 0.0
    return float(min(by_t, 2.0 * norm.sf(sqrt(n * reach))))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of tests (Holm 1979), in the given order.

    If those of at most α are rejected, the chance of any false rejection is at most α. The k-th smallest of m p-values
    is multiplied by (m - k + 1), and is at least the corrected one before it.
    """
    order, corrected, highest = sorted(range(len(ps)), key=lambda i: ps[i]), [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = highest
    return corrected


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for the false discovery rate (Benjamini and Hochberg 1995), in the given order.

    If those of at most α are rejected, the expected share of false rejections among them is at most α.
    """
    return [float(p) for p in false_discovery_control(ps)] if ps else []


@lru_cache(4096)
def smallest_difference(deviation: float, n: int, level: float = 0.95, power: float = 0.8) -> float:
    """Return the mean difference that `n` seeds detect with chance `power`; NaN for fewer than two seeds.

    `deviation` is the standard deviation of the differences by seed. The test is two-sided at 1 - `level`, by the
    noncentral t distribution.
    """
    if n < 2:
        return nan
    bound = float(t.isf((1.0 - level) / 2.0, n - 1))
    found = brentq(lambda delta: float(nct.sf(bound, n - 1, delta)) - power, 0.0, bound + 40.0)
    return float(found * deviation / sqrt(n))
