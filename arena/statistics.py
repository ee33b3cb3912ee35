"""Small-sample statistics without scipy: means, differences and rates, each with its confidence interval.

An interval never leaves the range that its quantity has: callers that know bounds pass them, and of named figures
`range_of` knows.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

Values = Sequence[float] | np.ndarray
"""Numbers in one dimension."""
Bounds = tuple[float, float]
"""Least and greatest value that a quantity can have."""
ANY: Bounds = (-math.inf, math.inf)
SHARE: Bounds = (0.0, 1.0)
COUNT: Bounds = (0.0, math.inf)
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
    """An estimate and the ends of its confidence interval; the ends are NaN where the data cannot say."""

    estimate: float
    low: float
    high: float


def range_of(name: str, values: Iterable[float | bool | str] = ()) -> Bounds:
    """The range of a figure, such as `report.deal` or `deal rate`, of which these are values.

    Shares are truth values, all that is called rate or share, and `SHARES`. Own games name their figures as they
    like: one with a value out of its name's range has none.
    """
    known = [value for value in values if not isinstance(value, str) and value == value]
    words, last = set(re.split(r"[\W_]+", name)), re.split(r"[.:] ?", name)[-1]
    if known and all(isinstance(value, bool) for value in known):
        return SHARE
    if {"payoff", "reward", "ratings"} & words:  # what follows is a seat's, role's or player's own name
        return ANY
    share = bool({"rate", "share", "ended"} & words) or last in SHARES
    bounds = SHARE if share else COUNT if last in COUNTS or last.startswith("told_") else ANY
    return bounds if all(bounds[0] <= value <= bounds[1] for value in known) else ANY


def mean_ci(values: Values, bounds: Bounds = ANY, level: float = 0.95) -> Interval:
    """Mean of independent values with an interval that stays within `bounds`, where no value can lie outside of them.

    Without bounds it is Student's. Within bounds it is the score interval of a quasi-likelihood: the means m from
    which the one seen is at most t standard errors away, the error being what the values' spread makes it at that
    mean, e √(V(m) / V(mean)) with V(m) = (m - low)(high - m), or the one factor of the bound there is (McCullagh and
    Nelder 1989, ch. 9). For shares that is Wilson's with the effective sample size and Student's quantile (Korn and
    Graubard 1998; Franco et al. 2019). Between two bounds nothing spreads more than a coin that falls on either, so
    it is never wider than Wilson's for as many coins, and just that for values of 0 and 1. Values that all
    lie at a bound tell no more than as many coins; elsewhere, and without two bounds, such as are all alike have no
    width.

    Why not others: of the means of 3 and 5 seeds in tests/arena/test_statistics.py, 0.95 promised, Student's interval
    covers 0.53 to 0.95 (cut off at the range or not), a bootstrap of the seeds 0.44 to 0.84, this 0.88 to 0.99. None
    can know of failures too rare to be among the values.
    All NaN for no values, NaN ends for one; ValueError for values that are not finite or out of bounds, and for a
    level outside (0, 1).
    """
    mean, error, n = _moments(values, bounds)
    return _interval(mean, error, n, n - 1, bounds, level)


def difference_ci(a: Values, b: Values, bounds: Bounds = ANY, level: float = 0.95) -> Interval:
    """Mean of `b` minus mean of `a`, two independent samples within `bounds`; the interval stays in its range, too.

    From the two means' own intervals by Newcombe's hybrid score method (1998, his method 10; Zou and Donner 2008),
    with the degrees of freedom of Welch and Satterthwaite; extended to Welch's interval, as far as the range goes,
    where that goes further: eight seeds at 0.99 have an interval of their own that knows nothing of the rare failure
    which one of the other eight shows. Without bounds it is Welch's. NaN ends when a sample has fewer than two values.
    """
    (mean_a, error_a, n_a), (mean_b, error_b, n_b) = _moments(a, bounds), _moments(b, bounds)
    freedom, error = float(min(n_a, n_b) - 1), math.hypot(error_a, error_b)
    if freedom < 1:
        return Interval(mean_b - mean_a, math.nan, math.nan)
    if error > 0:
        weight = (error_a / error) ** 2
        freedom = 1.0 / (weight**2 / (n_a - 1) + (1.0 - weight) ** 2 / (n_b - 1))
    one = _interval(mean_a, error_a, n_a, freedom, bounds, level)
    two = _interval(mean_b, error_b, n_b, freedom, bounds, level)
    welch = _interval(mean_b - mean_a, error, n_a + n_b, freedom, ANY, level)
    low = mean_b - mean_a - math.hypot(mean_b - two.low, one.high - mean_a)
    high = mean_b - mean_a + math.hypot(two.high - mean_b, mean_a - one.low)
    width = bounds[1] - bounds[0]
    return Interval(welch.estimate, max(-width, min(low, welch.low)), min(width, max(high, welch.high)))


def paired_ci(a: Values, b: Values, bounds: Bounds = ANY, level: float = 0.95) -> Interval:
    """Mean of `b` minus `a`, pair by pair: `mean_ci` of the differences, which lie within ± the width of `bounds`."""
    width = bounds[1] - bounds[0]
    return mean_ci([y - x for x, y in zip(a, b, strict=True)], (-width, width), level)


def rate_ci(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Share of successes in independent trials with Wilson's score interval (1927); all NaN for no trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials is not a rate")
    z = normal_quantile(_upper(level))
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan)
    return Interval(successes / trials, *_wilson(successes / trials, z**2 / trials))


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """pass^k of a task: the chance that k of its trials, drawn without putting back, all succeeded.

    C(successes, k) / C(trials, k), which is unbiased for the chance that k new trials all do (tau-bench, Yao et al.
    2024). ValueError for more successes than trials or k outside 1..trials.
    """
    if not (0 <= successes <= trials and 1 <= k <= trials):
        raise ValueError(f"no pass^{k} of {successes} successes in {trials} trials")
    return math.comb(successes, k) / math.comb(trials, k)


@lru_cache(4096)
def t_quantile(p: float, freedom: float) -> float:
    """The value that a Student-t variable of `freedom` > 0 degrees stays below with probability p in (0, 1).

    Bisection on the distribution function, itself an incomplete beta function (DLMF 8.17.22).
    """
    if not (0.0 < p < 1.0 and freedom > 0.0):
        raise ValueError(f"no Student-t quantile for p={p}, {freedom} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1.0 - p, freedom)
    low, high = 0.0, 1.0
    while _t_cdf(high, freedom) < p:
        low, high = high, 2.0 * high
    return _bisect(lambda t: _t_cdf(t, freedom), p, low, high)


def _moments(values: Values, bounds: Bounds) -> tuple[float, float, int]:
    """Mean, standard error of the mean and number of values."""
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
        return float(array[0]), 0.0, n  # to the last bit
    error = float(array.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return min(max(float(array.mean()), bounds[0]), bounds[1]), error, n


def _interval(mean: float, error: float, n: int, freedom: float, bounds: Bounds, level: float) -> Interval:
    """Return the interval of the mean of n values."""
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
    """Variance of n values in [0, 1] over p(1 - p), the most it can be; where both are 0 it may be that."""
    return n * error**2 / (share * (1 - share)) if 0 < share < 1 else 1.0


def _one_sided(mean: float, distance: float, bounds: Bounds) -> tuple[float, float]:
    """All m with |mean - m| <= distance · √(V(m) / V(mean)), V being how far from the one bound there is."""
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
    """All m in [0, 1] with (rate - m)² <= reach · m(1 - m)."""
    centre = (rate + reach / 2) / (1 + reach)
    half = math.sqrt(reach * rate * (1 - rate) + reach**2 / 4) / (1 + reach)
    return 0.0 if rate == 0 else max(0.0, centre - half), 1.0 if rate == 1 else min(1.0, centre + half)


def _upper(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise ValueError(f"a confidence level lies between 0 and 1, not at {level}")
    return 0.5 * (1.0 + level)


@lru_cache(4096)
def normal_quantile(p: float) -> float:
    """The value that a standard normal variable stays below with probability p."""
    return _bisect(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)), p, -40.0, 40.0)


def _bisect(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return where a rising function reaches the target, to the last bit that halving can tell apart."""
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return middle


def _t_cdf(t: float, freedom: float) -> float:
    """P(T <= t) for t >= 0."""
    tail = _beta_share(freedom / (freedom + t * t), 0.5 * freedom, 0.5)
    return 1.0 - 0.5 * tail


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta_share(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of DLMF 8.17.22, 1 + d1/(1 + d2/(1 + …)), evaluated by Lentz's method."""
    fraction, c, d = 1.0, 1.0, 0.0
    for k in range(1, 500):
        m = k // 2
        if k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d or 1e-300)
        c = 1.0 + term / c or 1e-300
        fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return fraction
