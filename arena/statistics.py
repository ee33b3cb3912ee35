"""Small-sample statistics: means, differences and rates, each with its confidence interval.

Intervals stay within the range of their quantity, which callers pass as `bounds`. `range_of` returns the range of a
figure by its name.
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

Values = Sequence[float] | np.ndarray
"""One-dimensional sequence of numbers."""
Bounds = tuple[float, float]
"""Minimum and maximum of a quantity."""
ANY: Bounds = (-math.inf, math.inf)
"""Bounds of an unbounded quantity."""
SHARE: Bounds = (0.0, 1.0)
"""Bounds of a share or rate."""
COUNT: Bounds = (0.0, math.inf)
"""Bounds of a count or another non-negative quantity."""
SHARES = frozenset({
    "clipped", "deal", "efficiency", "first", "gainful", "given", "inspected", "nash_product", "offered",
    "posterior_best", "posterior_named", "s", "same", "solved", "success", "tau_score", "trade", "valid", "won",
    "joint value / best", "valid per match", "truncated per match", "ended by a full context",
})  # fmt: skip
COUNTS = frozenset({
    "answers", "best_joint_value", "breaches", "budget", "checker_faults", "digits", "entropy", "extra", "failed",
    "failed_runs", "faults", "found", "guesses", "invalid", "kl", "lives", "matches", "missed", "missing_facts",
    "nash_conv", "pareto_distance", "questions", "repeated", "revenue", "rounds", "rows", "runs", "score",
    "shortest", "terms", "tests", "tokens", "turns", "unreadable",
})  # fmt: skip


class Interval(NamedTuple):
    """Estimate with the ends of its confidence interval, which are NaN if there are too few data."""

    estimate: float
    low: float
    high: float


def range_of(name: str, values: Iterable[float | bool | str] = ()) -> Bounds:
    """Return the range of a figure, such as `report.deal` or `deal rate`, from its name and known values.

    Booleans, names with `rate`, `share` or `ended`, and `SHARES` have the range [0, 1]; `COUNTS` have [0, ∞). All other
    figures are unbounded. So are figures with a value outside the range that their name suggests, because users' games
    choose names freely.
    """
    known = [value for value in values if not isinstance(value, str) and value == value]
    parts, last_word = set(re.split(r"[\W_]+", name)), re.split(r"[.:] ?", name)[-1]
    if known and all(isinstance(value, bool) for value in known):
        return SHARE
    if {"payoff", "reward", "ratings"} & parts:  # the rest of the name is a seat, role or player
        return ANY
    share = bool({"rate", "share", "ended"} & parts) or last_word in SHARES
    bounds = SHARE if share else COUNT if last_word in COUNTS or last_word.startswith("told_") else ANY
    return bounds if all(bounds[0] <= value <= bounds[1] for value in known) else ANY


def mean_ci(values: Values, bounds: Bounds = ANY, level: float = 0.95) -> Interval:
    """Return the mean of independent values with a confidence interval within `bounds`.

    Without bounds it is Student's interval. With bounds it is the score interval of a quasi-likelihood: all means m
    whose distance from the sample mean is at most t standard errors, where the error e of the sample is scaled to
    e √(V(m) / V(mean)) with V(m) = (m - low)(high - m), or only one of these factors if there is a single bound
    (McCullagh and Nelder 1989, ch. 9). For shares this is Wilson's interval with the effective sample size and
    Student's quantile (Korn and Graubard 1998; Franco et al. 2019). Binary values at the two bounds have the largest
    possible variance, so the interval is never wider than Wilson's for that number of binary values, and equal to it
    for values of 0 and 1. Identical values at a bound count as binary values. Other identical values give an interval
    of zero width.

    Coverage at level 0.95, for means of 3 and 5 seeds (tests/arena/test_statistics.py): 0.88 to 0.99. Student's
    interval covers 0.53 to 0.95 (clipped to the range or not), a bootstrap over seeds 0.44 to 0.84. No interval can
    account for failures too rare to occur among the values.

    Without values, everything is NaN; with one value, the ends are NaN. Raises ValueError for values that are not
    finite or out of bounds, and for a level outside (0, 1).
    """
    mean, error, n = _moments(values, bounds)
    return _interval(mean, error, n, n - 1, bounds, level)


def difference_ci(a: Values, b: Values, bounds: Bounds = ANY, level: float = 0.95) -> Interval:
    """Return the mean of `b` minus the mean of `a`, two independent samples within `bounds`, with its interval.

    Without bounds it is Welch's interval. With bounds it combines the two means' intervals by Newcombe's hybrid score
    method (1998, method 10; Zou and Donner 2008), with the degrees of freedom of Welch and Satterthwaite. Where Welch's
    interval, clipped to the possible range, is wider, the interval is extended to it: eight values of 0.99 do not show
    the rare failure that the other sample may contain. The ends are NaN if a sample has fewer than two values.
    """
    (mean_a, error_a, n_a), (mean_b, error_b, n_b) = _moments(a, bounds), _moments(b, bounds)
    freedom, error = float(min(n_a, n_b) - 1), math.hypot(error_a, error_b)
    if freedom < 1:
        return Interval(mean_b - mean_a, math.nan, math.nan)
    if error > 0:
        weight = (error_a / error) ** 2
        freedom = 1.0 / (weight**2 / (n_a - 1) + (1.0 - weight) ** 2 / (n_b - 1))
    interval_a = _interval(mean_a, error_a, n_a, freedom, bounds, level)
    interval_b = _interval(mean_b, error_b, n_b, freedom, bounds, level)
    welch = _interval(mean_b - mean_a, error, n_a + n_b, freedom, ANY, level)
    low = mean_b - mean_a - math.hypot(mean_b - interval_b.low, interval_a.high - mean_a)
    high = mean_b - mean_a + math.hypot(interval_b.high - mean_b, mean_a - interval_a.low)
    width = bounds[1] - bounds[0]
    return Interval(welch.estimate, max(-width, min(low, welch.low)), min(width, max(high, welch.high)))


def paired_ci(a: Values, b: Values, bounds: Bounds = ANY, level: float = 0.95) -> Interval:
    """Return the mean of the paired differences `b` - `a` with its interval.

    `bounds` are those of the values in `a` and `b`, so a difference lies within ± (high - low).
    """
    width = bounds[1] - bounds[0]
    return mean_ci([y - x for x, y in zip(a, b, strict=True)], (-width, width), level)


def rate_ci(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Return the share of successes in independent trials, with Wilson's score interval (1927); all NaN for no trials.

    Raises ValueError for more successes than trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials is not a rate")
    z = normal_quantile(_upper(level))
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan)
    return Interval(successes / trials, *_wilson(successes / trials, z**2 / trials))


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """Return pass^k of a task: the probability that k of its trials, drawn without replacement, all succeeded.

    C(successes, k) / C(trials, k) is an unbiased estimate of the probability that k new trials all succeed (tau-bench,
    Yao et al. 2024). Raises ValueError for more successes than trials or k outside 1..trials.
    """
    if not (0 <= successes <= trials and 1 <= k <= trials):
        raise ValueError(f"no pass^{k} of {successes} successes in {trials} trials")
    return math.comb(successes, k) / math.comb(trials, k)


@lru_cache(4096)
def t_quantile(p: float, freedom: float) -> float:
    """Return the quantile at probability `p`, in (0, 1), of Student's t distribution with `freedom` > 0.

    Raises ValueError outside these ranges.
    """
    if not (0.0 < p < 1.0 and freedom > 0.0):
        raise ValueError(f"no Student-t quantile for p={p}, {freedom} degrees of freedom")
    from scipy.special import stdtrit  # imported here so that commands without intervals start faster

    return float(stdtrit(freedom, p))


@lru_cache(4096)
def normal_quantile(p: float) -> float:
    """Return the quantile of the standard normal distribution at probability `p`."""
    from scipy.special import ndtri

    return float(ndtri(p))


def _moments(values: Values, bounds: Bounds) -> tuple[float, float, int]:
    """Return the mean, its standard error (NaN for fewer than two values), and the number of values.

    The mean is NaN without values. It is clipped to `bounds`, because rounding could exceed them. Raises ValueError
    unless the values are one-dimensional, finite and within `bounds`.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError("statistics need one list of finite numbers")
    n = len(array)
    if n == 0:
        return math.nan, math.nan, 0
    if array.min() < bounds[0] or array.max() > bounds[1]:
        raise ValueError(
            f"values from {array.min():g} to {array.max():g} are not within {bounds[0]:g} and {bounds[1]:g}"
        )
    if n > 1 and array.min() == array.max():
        return float(array[0]), 0.0, n  # exact, without rounding errors of the mean
    error = float(array.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return min(max(float(array.mean()), bounds[0]), bounds[1]), error, n


def _interval(mean: float, error: float, n: int, freedom: float, bounds: Bounds, level: float) -> Interval:
    """Return the interval, within `bounds`, of the mean of n values with this standard error and degrees of freedom."""
    upper = _upper(level)
    if math.isnan(error):
        return Interval(mean, math.nan, math.nan)
    (low, high), t = bounds, t_quantile(upper, freedom)
    if (low, high) == ANY or (error == 0 and mean not in bounds):
        return Interval(mean, mean - t * error, mean + t * error)
    if math.isinf(high - low):
        return Interval(mean, *_one_sided(mean, t * error, bounds))
    share, width = (mean - low) / (high - low), high - low
    reach = min(t**2 * _dispersion(share, error / width, n), normal_quantile(upper) ** 2) / n
    below, above = _wilson(share, reach)
    return Interval(mean, low + width * below, high - width * (1.0 - above))


def _dispersion(share: float, error: float, n: int) -> float:
    """Return the variance of n values in [0, 1] relative to its maximum p(1 - p) at their mean p; 1 if that is 0.

    `share` is their mean, and `error` its standard error.
    """
    return n * error**2 / (share * (1 - share)) if 0 < share < 1 else 1.0


def _one_sided(mean: float, distance: float, bounds: Bounds) -> tuple[float, float]:
    """Return the smallest and largest m with |mean - m| <= distance · √(V(m) / V(mean)).

    V(m) is the distance of m from the bound.
    """
    low, high = bounds
    if math.isinf(low):
        above, below = _one_sided(-mean, distance, (-high, math.inf))
        return -below, -above
    if distance == 0:
        return mean, mean
    reach = distance**2 / (mean - low)
    half = math.sqrt(distance**2 + reach**2 / 4)
    return max(low, mean + reach / 2 - half), mean + reach / 2 + half


def _wilson(rate: float, reach: float) -> tuple[float, float]:
    """Return the smallest and largest m in [0, 1] with (rate - m)² <= reach · m(1 - m)."""
    centre = (rate + reach / 2) / (1 + reach)
    half = math.sqrt(reach * rate * (1 - rate) + reach**2 / 4) / (1 + reach)
    return 0.0 if rate == 0 else max(0.0, centre - half), 1.0 if rate == 1 else min(1.0, centre + half)


def _upper(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise ValueError(f"a confidence level is between 0 and 1, not {level}")
    return 0.5 * (1.0 + level)
