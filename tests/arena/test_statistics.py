"""Confidence intervals against tables and closed forms."""

import math
import subprocess
import sys

import numpy as np
import pytest

from arena.statistics import (
    ANY,
    COUNT,
    SHARE,
    Bounds,
    Interval,
    difference_ci,
    mean_ci,
    paired_ci,
    range_of,
    rate_ci,
    t_quantile,
)


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 10, 2.22814), (0.95, 5, 2.01505), (0.5, 3, 0.0)],
)
def test_quantiles_match_the_tables(p: float, freedom: float, value: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(value, rel=1e-5, abs=1e-12)
    assert t_quantile(1 - p, freedom) == pytest.approx(-value, rel=1e-5, abs=1e-12)


def test_interval_of_a_mean() -> None:
    assert mean_ci([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0 - 2.48414, 2.0 + 2.48414), abs=1e-4)
    assert mean_ci([5.0, 5.0]) == (5.0, 5.0, 5.0)
    assert math.isnan(mean_ci([]).estimate)
    single = mean_ci([7.0])
    assert single.estimate == 7.0 and math.isnan(single.low) and math.isnan(single.high)


def test_difference_is_later_minus_earlier_by_welch() -> None:
    interval = difference_ci([1, 2, 4.5, 3], [2, 2.2, 9, 4, 5])
    assert interval == pytest.approx((1.815, -1.756042680, 5.386042680), abs=1e-8)
    assert difference_ci([1, 1], [3, 3]) == (2.0, 2.0, 2.0)
    assert math.isnan(difference_ci([1], [2, 3]).low)


def test_a_rate_has_wilsons_interval() -> None:
    assert rate_ci(3, 10) == pytest.approx((0.3, 0.107791, 0.603222), abs=1e-6)
    assert rate_ci(0, 7) == pytest.approx((0.0, 0.0, 0.354330), abs=1e-6)
    assert rate_ci(7, 7) == pytest.approx((1.0, 0.645670, 1.0), abs=1e-6)
    assert math.isnan(rate_ci(0, 0).estimate)


def test_intervals_of_means_have_their_coverage() -> None:
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


def test_wilsons_interval_has_its_exact_coverage() -> None:
    intervals = [rate_ci(k, 20) for k in range(21)]
    chance = [math.comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(21)]
    covered = sum(p for p, candidate in zip(chance, intervals, strict=True) if candidate.low <= 0.3 <= candidate.high)
    assert covered == pytest.approx(0.975218, abs=1e-6)


@pytest.mark.parametrize("values", [[1.0, float("nan")], [float("inf")], [[1.0], [2.0]]])
def test_only_finite_lists_are_taken(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_ci(values)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    for call in (lambda: mean_ci([1, 2], level=level), lambda: rate_ci(1, 2, level)):
        with pytest.raises(ValueError, match="level"):
            call()
    with pytest.raises(ValueError, match="not a rate"):
        rate_ci(3, 2)


def test_scipy_is_loaded_on_demand() -> None:
    code = "import arena.statistics, sys; assert not {'scipy', 'torch', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bounded_means_by_hand() -> None:
    # 0.34, 0.13, 0.06: p = 0.1767, s² = 0.02123, s² / p(1-p) = 0.146, times t² = 18.51 is 2.703, over 3 values 0.901:
    # (p + 0.4505 ± sqrt(0.901 p(1-p) + 0.4505²)) / 1.901 = 0.3299 ± 0.3041. Student's goes from -0.19 to 0.54.
    assert mean_ci([0.34, 0.13, 0.06], SHARE) == pytest.approx((0.17667, 0.0258, 0.6340), abs=2e-4)
    # Variances of 0.667 and more of p(1-p) would exceed a coin's by Student's quantile: Wilson's of two in three.
    assert mean_ci([1.0, 1.0, 0.0], SHARE) == pytest.approx(rate_ci(2, 3))
    assert mean_ci([10.0, 10.0, 0.0], (0.0, 10.0)) == pytest.approx([10 * end for end in rate_ci(2, 3)])
    # 1, 2, 6 breaches: m = 3, s² = 7, t²s²/(3m) = 14.40: 3 + 7.20 ± sqrt(3 · 14.40 + 7.20²) = 10.20 ± 9.75.
    assert mean_ci([1.0, 2.0, 6.0], COUNT) == pytest.approx((3.0, 0.4504, 19.9494), abs=2e-3)
    mirrored = mean_ci([-1.0, -2.0, -6.0], (-math.inf, 0.0))
    assert mirrored == pytest.approx((-3.0, -19.9494, -0.4504), abs=2e-3)


def test_shares_of_one_trial_each_are_a_rate() -> None:
    for outcomes in ([1, 0, 0, 1, 1], [0] * 10, [1] * 24, [0, 1]):
        assert mean_ci(outcomes, SHARE) == pytest.approx(rate_ci(sum(outcomes), len(outcomes)))


def test_values_that_are_all_at_a_bound_are_not_certain() -> None:
    assert mean_ci([0.0, 0.0, 0.0], SHARE) == pytest.approx((0.0, 0.0, 0.561497), abs=1e-6)
    assert mean_ci([0.0, 0.0, 0.0], (-1.0, 0.0)) == pytest.approx((0.0, -0.561497, 0.0), abs=1e-6)
    for bounds in (ANY, COUNT, SHARE):
        assert mean_ci([0.1, 0.1, 0.1], bounds) == (0.1, 0.1, 0.1)


def test_interval_far_from_its_bounds_is_students() -> None:
    values = [0.50, 0.51, 0.49, 0.50]
    assert mean_ci(values, SHARE) == pytest.approx(mean_ci(values), abs=2e-4)
    assert mean_ci([1000.0, 1001.0, 1003.0], COUNT) == pytest.approx(mean_ci([1000.0, 1001.0, 1003.0]), abs=0.02)


@pytest.mark.parametrize("bounds", [ANY, COUNT, SHARE, (-1.0, 1.0), (-math.inf, 1.0)])
def test_no_interval_leaves_its_range_or_its_estimate(bounds: Bounds) -> None:
    rng = np.random.default_rng(0)
    low, high = max(bounds[0], -1.0), min(bounds[1], 1.0)
    for n in (2, 3, 5, 40):
        for _ in range(100):
            a, b = (
                np.clip(rng.normal(rng.choice([low, 0.5, high]), rng.choice([0, 0.1, 1]), n), low, high) for _ in "ab"
            )
            for interval, (least, most) in (
                (mean_ci(a, bounds), bounds),
                (difference_ci(a, b, bounds), (bounds[0] - bounds[1], bounds[1] - bounds[0])),
                (paired_ci(a, b, bounds), (bounds[0] - bounds[1], bounds[1] - bounds[0])),
            ):
                assert least - 1e-12 <= interval.low <= interval.estimate + 1e-12
                assert interval.estimate - 1e-12 <= interval.high <= most + 1e-12


def test_values_out_of_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"from 0\.5 to 1\.5 are not within 0 and 1"):
        mean_ci([0.5, 1.5], SHARE)


def test_difference_of_rates_is_newcombes_or_welchs_if_wider() -> None:
    # Newcombe's table II, method 10: 56/70 - 48/80 has the interval 0.0524 to 0.3339, 10/10 - 0/20 0.6791 to 1, and
    # 10/10 - 0/10 0.6075 to 1. The quantile here is Student's times the sample's deviation, at most the normal one,
    # which gives the same.
    for (x, m), (y, n), ends in (
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((10, 10), (0, 20), (0.6791, 1.0)),
        ((10, 10), (0, 10), (0.6075, 1.0)),
    ):
        first, second = ([1.0] * k + [0.0] * (of - k) for k, of in ((x, m), (y, n)))
        welch = difference_ci(second, first)
        low, high = difference_ci(second, first, SHARE)[1:]
        assert low == pytest.approx(min(ends[0], welch.low), abs=1e-4)
        assert high == pytest.approx(max(ends[1], welch.high), abs=1e-4)


def test_one_failed_seed_of_eight_is_no_difference() -> None:
    healthy, one_failed = (
        [0.99, 0.992, 0.989, 0.991, 0.99, 0.99, 0.991, 0.99],
        [0.99, 0.99, 0.991, 0.0, 0.99, 0.99, 0.992, 0.99],
    )
    assert difference_ci(one_failed, healthy, SHARE).low < 0 < difference_ci(one_failed, healthy, SHARE).high
    rng, missed = np.random.default_rng(0), 0
    for _ in range(500):  # both arms alike: a seed in twenty fails
        a, b = ((rng.random(8) > 0.05) * 0.99 + rng.random(8) / 1000 for _ in "ab")
        interval = difference_ci(a, b, SHARE)
        missed += not interval.low <= 0 <= interval.high
    assert missed <= 25


def test_paired_intervals() -> None:
    assert paired_ci([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == mean_ci([1.0, 2.0, 3.0])
    assert paired_ci([0.1, 0.2, 0.1], [0.2, 0.4, 0.4], SHARE) == mean_ci([0.1, 0.2, 0.30000000000000004], (-1.0, 1.0))


def bootstrap(seeds: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return percentiles over resampled seeds, one row per study."""
    drawn = seeds[:, rng.integers(seeds.shape[1], size=(300, seeds.shape[1]))].mean(-1)
    return tuple(np.quantile(drawn, [0.025, 0.975], axis=1))


@pytest.mark.parametrize(
    ("seeds", "rate", "spread", "ours", "students", "resampled"),
    [
        (3, 0.02, 0.03, 0.99, 0.67, 0.65),
        (3, 0.1, 0.2, 0.99, 0.79, 0.61),
        (3, 0.5, 0.03, 0.96, 0.95, 0.82),
        (3, 0.9, 0.6, 0.97, 0.50, 0.45),
        (5, 0.02, 0.03, 0.98, 0.85, 0.82),
        (5, 0.9, 0.2, 0.93, 0.84, 0.75),
        (5, 0.1, 0.6, 0.90, 0.62, 0.59),
    ],
)
def test_coverage_of_rates_over_few_seeds(
    seeds: int, rate: float, spread: float, ours: float, students: float, resampled: float
) -> None:
    # Each seed's own rate is drawn from a beta with this mean and variance spread · p(1-p), then measured 24 times.
    rng, studies = np.random.default_rng(0), 1000
    size = 1 / spread - 1
    measured = rng.binomial(24, rng.beta(rate * size, (1 - rate) * size, (studies, seeds))) / 24

    def measure_coverage(intervals: list[Interval]) -> float:
        return float(np.mean([i.low <= rate <= i.high for i in intervals]))

    low, high = bootstrap(measured, rng)
    noise = 0.04  # some four standard errors
    assert measure_coverage([mean_ci(row, SHARE) for row in measured.tolist()]) == pytest.approx(ours, abs=noise)
    assert measure_coverage([mean_ci(row) for row in measured.tolist()]) == pytest.approx(students, abs=noise)
    assert float(np.mean((low <= rate) & (rate <= high))) == pytest.approx(resampled, abs=noise)


@pytest.mark.parametrize(
    ("first_rate", "second_rate", "ours", "welchs"),
    [(0.02, 0.1, 0.99, 0.92), (0.5, 0.9, 0.95, 0.95), (0.05, 0.95, 0.97, 0.84)],
)
def test_coverage_of_differences_over_few_seeds(
    first_rate: float, second_rate: float, ours: float, welchs: float
) -> None:
    rng, studies = np.random.default_rng(1), 1000
    a, b = (rng.binomial(24, rng.beta(9 * p, 9 * (1 - p), (studies, 3))) / 24 for p in (first_rate, second_rate))

    def measure_coverage(bounds: Bounds) -> float:
        intervals = (difference_ci(x, y, bounds) for x, y in zip(a.tolist(), b.tolist(), strict=True))
        return float(np.mean([i.low <= second_rate - first_rate <= i.high for i in intervals]))

    noise = 0.04
    assert measure_coverage(SHARE) == pytest.approx(ours, abs=noise) and measure_coverage(ANY) == pytest.approx(
        welchs, abs=noise
    )


@pytest.mark.parametrize(
    ("name", "values", "bounds"),
    [
        ("report.deal", [0.2, 1.0], SHARE),
        ("report.kuhn_poker.ended.illegal", [], SHARE),
        ("valid per match", [0.5], SHARE),
        ("win_rate.shared vs random", [0.5], SHARE),
        ("negotiation: joint value / best", [0.5], SHARE),
        ("report.my_own", [True, False], SHARE),
        ("report.my_own", [1.0, 0.0], ANY),
        ("learn.shared.kl", [0.1], COUNT),
        ("breaches", [0, 3], COUNT),
        ("payoff.deal", [0.5], ANY),
        ("payoff share", [0.5], ANY),
        ("reward.rate", [0.5], ANY),
        ("efficiency", [0.5, 1.5], ANY),
        ("efficiency", [0.5, float("nan")], SHARE),
        ("turns", [-1], ANY),
        ("answer", ["a"], ANY),
    ],
)
def test_figure_has_the_range_of_its_name_if_its_values_fit(name: str, values: list[float], bounds: Bounds) -> None:
    assert range_of(name, values) == bounds
