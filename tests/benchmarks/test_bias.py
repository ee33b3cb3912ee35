"""The bias table: its reference gradient, exact cases, and agreement with the documentation."""

from pathlib import Path
from typing import Any

import bias
import numpy as np
import pytest

from arena.credit.estimators import ESTIMATORS

DOCS = Path(__file__).parents[2] / "docs" / "gradients.md"
EXACT = 1e-9


def test_the_gradient_is_that_of_the_expected_return() -> None:
    for world in bias.WORLDS.values():
        outcomes = world(bias.LOGITS)
        assert sum(outcome.probability for outcome in outcomes) == pytest.approx(1, abs=EXACT)

        def value(logits: np.ndarray, world: Any = world) -> float:
            return sum(one.probability * sum(one.rewards) for one in world(logits))

        step = 1e-5 * np.eye(len(bias.LOGITS))
        slopes = [(value(bias.LOGITS + e) - value(bias.LOGITS - e)) / 2e-5 for e in step]
        assert bias.compute_gradient(outcomes) == pytest.approx(slopes, abs=1e-8)


@pytest.mark.slow
def test_exact_estimators_have_no_bias() -> None:
    """A mean that includes the own sample scales by (n - 1)/n; n = 4."""
    scales = {"reinforce": 1.0, "rae": 1.0, "rloo": 1.0, "dr_grpo": 0.75}
    for name, scale in scales.items():
        for world in bias.WORLDS.values():
            measured = bias.measure_bias(world(bias.LOGITS), name, bias.AGGREGATES[0])
            assert abs(measured["scale"] - scale) < EXACT and measured["astray"] < EXACT, name
    for name in ("gae_turn, exact critic", "archer, exact critic"):
        for world in bias.WORLDS.values():
            measured = bias.measure_bias(world(bias.LOGITS), name, bias.AGGREGATES[0], size=2)
            assert abs(measured["scale"] - 1.0) < 1e-6 and measured["astray"] < 1e-6, name  # critics speak in float32
    measured = bias.measure_bias(bias.enumerate_fixed_length(bias.LOGITS), "mars, by turn", bias.AGGREGATES[0])
    assert abs(measured["scale"] - 0.75) < EXACT and measured["astray"] < EXACT, "as many at each turn"
    assert (
        bias.measure_bias(bias.enumerate_chosen_stop(bias.LOGITS), "mars, by turn", bias.AGGREGATES[0])["astray"] > 0.05
    )


def test_pairs_are_matches_with_their_branches() -> None:
    """A pair's probability is that of the match, of a random turn, and of the branch from there."""
    for world in bias.WORLDS.values():
        units = bias.list_units(world(bias.LOGITS), paired=True)
        assert sum(probability for probability, _ in units) == pytest.approx(1, abs=EXACT)
        for _, ((match, _), (branch, at)) in units:
            assert match.acts[:at] == branch.acts[:at]
    same = bias.measure_bias(bias.enumerate_fixed_length(bias.LOGITS), "refuel", bias.AGGREGATES[0], size=2)
    assert same["astray"] < EXACT, "two turns always: each is branched off as often as the other"
    assert (
        bias.measure_bias(bias.enumerate_chosen_stop(bias.LOGITS), "refuel", bias.AGGREGATES[0], size=2)["astray"]
        > 0.05
    )


def test_every_estimator_of_the_lab_is_in_the_table() -> None:
    """Except combinations, controls, token-level ones, and the one that compares branches."""
    left_out = {"weighted_sum", "zero", "shuffled", "regrouped", "gae_token", "gae_bilevel", "tree"}
    assert {name for name, _ in bias.ESTIMATORS.values()} == set(ESTIMATORS) - left_out


@pytest.mark.slow
def test_the_documentation_shows_the_table() -> None:
    assert bias.format_table(list(bias.compute_rows())) in DOCS.read_text()
