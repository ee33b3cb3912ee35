"""Small-sample statistics without scipy: means, differences and rates, each with its confidence interval."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval; the ends are NaN where the data cannot say."""

    estimate: float
    low: float
    high: float


def mean_ci(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean with its Student-t interval (n - 1 degrees of freedom).

    All NaN for no values, NaN ends for one; ValueError for NaN, infinities or a level outside (0, 1).
    """
    mean, error, n = _moments(values)
    return _student(mean, error, n - 1, level)


def difference_ci(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Mean of `b` minus mean of `a`, two independent samples, with Welch's unequal-variance interval.

    Degrees of freedom by Welch and Satterthwaite. NaN ends when a sample has fewer than two values.
    """
    (mean_a, error_a, n_a), (mean_b, error_b, n_b) = _moments(a), _moments(b)
    error = math.hypot(error_a, error_b)
    if min(n_a, n_b) < 2 or error == 0.0:
        return _student(mean_b - mean_a, error, min(n_a, n_b) - 1, level)
    weight = (error_a / error) ** 2
    freedom = 1.0 / (weight**2 / (n_a - 1) + (1.0 - weight) ** 2 / (n_b - 1))
    return _student(mean_b - mean_a, error, freedom, level)


def rate_ci(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Share of successes with Wilson's score interval (1927), sound near 0 and 1; all NaN for no trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials is not a rate")
    return _wilson(successes / trials if trials else math.nan, trials, level)


def share_ci(shares: Sequence[float], trials: int, level: float = 0.95) -> Interval:
    """Mean of shares in [0, 1], one for each independent group of so many trials, with Wilson's interval for groups.

    Its sample size is the effective one, p(1 - p) over the mean's variance (Korn and Graubard 1998; Franco et al.
    2019), at least the number of groups and at most that of trials. So it is sound near 0 and 1, where Student's
    interval is not, and is `rate_ci` where every group is one trial. All NaN for no shares.
    """
    mean, error, groups = _moments(shares)
    if any(not 0 <= share <= 1 for share in shares):
        raise ValueError("shares lie between 0 and 1")
    spread = error if groups > 1 else 0.0
    effective = mean * (1 - mean) / spread**2 if spread else groups  # all alike: as if a group's trials were one
    return _wilson(mean, min(max(effective, groups), groups * trials), level)


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """pass^k of a task: the chance that k of its trials, drawn without putting back, all succeeded.

    C(successes, k) / C(trials, k), which is unbiased for the chance that k new trials all do (tau-bench, Yao et al.
    2024). ValueError for more successes than trials or k outside 1..trials.
    """
    if not (0 <= successes <= trials and 1 <= k <= trials):
        raise ValueError(f"no pass^{k} of {successes} successes in {trials} trials")
    return math.comb(successes, k) / math.comb(trials, k)


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


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, standard error of the mean and number of values."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError("statistics need one list of finite numbers")
    n = len(array)
    if n == 0:
        return math.nan, math.nan, 0
    return float(array.mean()), float(array.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan, n


def _student(mean: float, error: float, freedom: float, level: float) -> Interval:
    upper = _upper(level)
    if freedom < 1 or math.isnan(error):
        return Interval(mean, math.nan, math.nan)
    half = error * t_quantile(upper, freedom) if error else 0.0
    return Interval(mean, mean - half, mean + half)


def _wilson(rate: float, trials: float, level: float) -> Interval:
    z = _normal_quantile(_upper(level))
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan)
    centre = (rate + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    return Interval(rate, 0.0 if rate == 0 else max(0.0, centre - half), 1.0 if rate == 1 else min(1.0, centre + half))


def _upper(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise ValueError(f"a confidence level lies between 0 and 1, not at {level}")
    return 0.5 * (1.0 + level)


def _normal_quantile(p: float) -> float:
    return _bisect(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)), p, -40.0, 40.0)


def _bisect(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a rising function reaches the target, to the last bit that halving can tell apart."""
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
