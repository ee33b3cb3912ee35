"""P-values of a study's comparisons, corrections over a family of studies, and statistical power.

The p-value of a comparison is the level at which its interval (`arena.statistics.paired_ci`) just touches the tested
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
    """One-sided p-values of the tested value against a higher mean (`above`) and a lower mean (`below`)."""

    above: float
    below: float


def compute_tails(differences: Sequence[float], bounds: Bounds, value: float = 0.0) -> Tails:
    """Return one-sided p-values of the mean of the differences against `value`; both are 1 for fewer than two.

    The differences lie within `bounds`. Without bounds this is Student's test. With bounds, the interval is the set of
    all m with (mean - m)² ≤ reach · m (1 - m), where mean and m are shares of the range, reach = min(t² d, z²) / n, and
    d is the dispersion. This solves for t and z at m = value.
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
        return 0.0  # the mean cannot be at a bound if some values differ from it
    share, at = (mean - low) / (high - low), (value - low) / (high - low)
    reach = (share - at) ** 2 / (at * (1.0 - at))
    dispersion = n * (error / (high - low)) ** 2 / (share * (1.0 - share)) if 0.0 < share < 1.0 else 1.0
    by_t = 2.0 * t.sf(sqrt(n * reach / dispersion), n - 1) if dispersion > 0 else 0.0
    return float(min(by_t, 2.0 * norm.sf(sqrt(n * reach))))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of tests (Holm 1979), in the given order.

    Rejecting all corrected p-values ≤ α keeps the familywise error rate ≤ α. The k-th smallest of m is multiplied by
    m - k + 1, and is at least the corrected value of the next smaller one.
    """
    order, corrected, highest = sorted(range(len(ps)), key=lambda i: ps[i]), [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = highest
    return corrected


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for the false discovery rate (Benjamini and Hochberg 1995), in the given order.

    Rejecting all corrected p-values ≤ α keeps the expected share of false rejections ≤ α.
    """
    return [float(p) for p in false_discovery_control(ps)] if ps else []


@lru_cache(4096)
def smallest_difference(deviation: float, n: int, level: float = 0.95, power: float = 0.8) -> float:
    """Return the smallest mean difference that `n` seeds detect with probability `power`; NaN for fewer than two.

    `deviation` is the standard deviation of the differences over seeds. The test is two-sided at level 1 - `level`; its
    power follows from the noncentral t distribution.
    """
    if n < 2:
        return nan
    bound = float(t.isf((1.0 - level) / 2.0, n - 1))
    found = brentq(lambda delta: float(nct.sf(bound, n - 1, delta)) - power, 0.0, bound + 40.0)
    return float(found * deviation / sqrt(n))
