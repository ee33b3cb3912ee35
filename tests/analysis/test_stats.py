"""Confidence intervals against tables, closed forms and, where it is installed, scipy."""

import math
import subprocess
import sys

import numpy as np
import pytest

from analysis.stats import difference_ci, mean_ci, rate_ci
from arena.statistics import t_quantile


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 10, 2.22814), (0.95, 5, 2.01505), (0.5, 3, 0.0)],
)
def test_quantiles_are_those_of_the_tables(p: float, freedom: float, value: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(value, rel=1e-5, abs=1e-12)
    assert t_quantile(1 - p, freedom) == pytest.approx(-value, rel=1e-5, abs=1e-12)


def test_quantiles_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 1.5, 3, 4.7, 29, 1000, 1e5):
        for p in (0.55, 0.9, 0.975, 0.9995):
            assert t_quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-8)


def test_the_mean_has_its_interval() -> None:
    assert mean_ci([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0 - 2.48414, 2.0 + 2.48414), abs=1e-4)
    assert mean_ci([5.0, 5.0]) == (5.0, 5.0, 5.0)
    assert math.isnan(mean_ci([]).estimate)
    single = mean_ci([7.0])
    assert single.estimate == 7.0 and math.isnan(single.low) and math.isnan(single.high)


def test_a_difference_is_later_minus_earlier_by_welch() -> None:
    found = difference_ci([1, 2, 4.5, 3], [2, 2.2, 9, 4, 5])
    assert found == pytest.approx((1.815, -1.756042680, 5.386042680), abs=1e-8)
    assert difference_ci([1, 1], [3, 3]) == (2.0, 2.0, 2.0)
    assert math.isnan(difference_ci([1], [2, 3]).low)


def test_a_rate_has_wilsons_interval() -> None:
    assert rate_ci(3, 10) == pytest.approx((0.3, 0.107791, 0.603222), abs=1e-6)
    assert rate_ci(0, 7) == pytest.approx((0.0, 0.0, 0.354330), abs=1e-6)
    assert rate_ci(7, 7) == pytest.approx((1.0, 0.645670, 1.0), abs=1e-6)
    assert math.isnan(rate_ci(0, 0).estimate)


def test_intervals_of_means_cover_what_they_promise() -> None:
    rng, n = np.random.default_rng(0), 4000
    covered = {"mean": 0, "difference": 0}
    for _ in range(n):
        a, b = rng.normal(1.0, 2.0, 5), rng.normal(4.0, 0.5, 8)
        mean, change = mean_ci(a), difference_ci(a, b)
        covered["mean"] += mean.low <= 1.0 <= mean.high
        covered["difference"] += change.low <= 3.0 <= change.high
    noise = 4 * math.sqrt(0.95 * 0.05 / n)
    assert abs(covered["mean"] / n - 0.95) < noise
    # Welch's interval is approximate: for these two samples it covers 0.946 (200,000 draws, by scipy too).
    assert abs(covered["difference"] / n - 0.946) < noise


def test_wilsons_interval_covers_what_it_promises_exactly() -> None:
    found = [rate_ci(k, 20) for k in range(21)]
    chance = [math.comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(21)]
    covered = sum(p for p, at in zip(chance, found, strict=True) if at.low <= 0.3 <= at.high)
    assert covered == pytest.approx(0.975218, abs=1e-6)


@pytest.mark.parametrize("values", [[1.0, float("nan")], [float("inf")], [[1.0], [2.0]]])
def test_only_finite_lists_are_taken(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_ci(values)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    for call in (lambda: mean_ci([1, 2], level), lambda: rate_ci(1, 2, level)):
        with pytest.raises(ValueError, match="level"):
            call()
    with pytest.raises(ValueError, match="not a rate"):
        rate_ci(3, 2)


def test_scipy_is_not_needed() -> None:
    code = "import arena.statistics, sys; assert not {'scipy', 'torch', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
