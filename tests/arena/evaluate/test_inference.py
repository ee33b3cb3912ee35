"""P-values that agree with the intervals, and corrections over a family."""

import numpy as np
import pytest

from arena.evaluate.study import inference
from arena.statistics import ANY, SHARE, Bounds, paired_ci


@pytest.mark.parametrize("bounds", [ANY, SHARE])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_p_value_agrees_with_the_interval(bounds: Bounds, value: float) -> None:
    rng, width = np.random.default_rng(3), bounds[1] - bounds[0]
    for _ in range(50):
        n = int(rng.integers(2, 12))
        a, b = rng.uniform(0, 0.5, n), rng.uniform(0.1, 0.9, n)
        tails = inference.compute_tails((b - a).tolist(), (-width, width), value)
        assert tails.above + tails.below == pytest.approx(1)
        p = 2 * min(tails)
        if not 1e-6 < p < 0.999:
            continue
        wider, narrower = (paired_ci(a, b, bounds, 1 - p * factor) for factor in (0.999, 1.001))
        assert not narrower.low <= value <= narrower.high and wider.low <= value <= wider.high


def test_tails_of_degenerate_differences() -> None:
    assert inference.compute_tails([0.5], ANY) == (1.0, 1.0), "one seed"
    assert inference.compute_tails([0.25, 0.25, 0.25], (-1.0, 1.0)) == (0.0, 1.0), "no spread, away from a bound"
    assert inference.compute_tails([0.1, 0.1], ANY, 0.1) == (0.5, 0.5)
    assert inference.compute_tails([1.0, 1.0], (-1.0, 1.0)).above > 0.01, (
        "two seeds at the bound are like two coin flips"
    )
    assert inference.compute_tails([0.2, 0.3], (-1.0, 1.0), 1.0).above > 0.9, "nothing is above the highest there is"


def test_holm_and_benjamini_hochberg_by_hand() -> None:
    # sorted .01 .02 .03 .04: times 4, 3, 2, 1 -> .04 .06 .06 .06 (never below the one before)
    assert inference.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert inference.holm([0.5, 0.9]) == [1.0, 1.0] and inference.holm([]) == []
    # .01 * 4/1, .02 * 4/2, .03 * 4/3, .04: all .04
    assert inference.benjamini_hochberg([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.04] * 4)
    assert inference.benjamini_hochberg([]) == []


def test_smallest_difference_is_detected_with_the_stated_power() -> None:
    rng, n, deviation = np.random.default_rng(7), 10, 0.2
    delta = inference.smallest_difference(deviation, n, 0.95, 0.8)
    samples = rng.normal(delta, deviation, size=(20_000, n))
    t = samples.mean(1) / (samples.std(1, ddof=1) / np.sqrt(n))
    assert (t > 2.2622).mean() == pytest.approx(0.8, abs=0.01)
    assert inference.smallest_difference(deviation, 20) < delta < inference.smallest_difference(deviation, n, 0.99)
    assert np.isnan(inference.smallest_difference(deviation, 1))
