"""The bias table: the gradient it compares with, what must hold exactly, and that the documentation shows it."""

from pathlib import Path
from typing import Any

import bias
import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs" / "gradients.md"
EXACT = 1e-9


def test_the_gradient_is_that_of_the_expected_return() -> None:
    for world in bias.WORLDS.values():
        outcomes = world(bias.LOGITS)
        assert sum(one.chance for one in outcomes) == pytest.approx(1, abs=EXACT)

        def value(logits: np.ndarray, world: Any = world) -> float:
            return sum(one.chance * sum(one.rewards) for one in world(logits))

        step = 1e-5 * np.eye(len(bias.LOGITS))
        slopes = [(value(bias.LOGITS + e) - value(bias.LOGITS - e)) / 2e-5 for e in step]
        assert bias.gradient(outcomes) == pytest.approx(slopes, abs=1e-8)


def test_what_is_exact_is_exact() -> None:
    """An own sample in the mean scales by (n - 1)/n and turns nothing; n = 4."""
    scales = {"reinforce": 1.0, "rae": 1.0, "rloo": 1.0, "dr_grpo": 0.75}
    for name, scale in scales.items():
        for world in bias.WORLDS.values():
            found = bias.measured(world(bias.LOGITS), name, bias.AGGREGATES[0])
            assert abs(found["scale"] - scale) < EXACT and found["astray"] < EXACT, name
    found = bias.measured(bias.fixed_length(bias.LOGITS), "mars, by turn", bias.AGGREGATES[0])
    assert abs(found["scale"] - 0.75) < EXACT and found["astray"] < EXACT, "as many at each turn"
    assert bias.measured(bias.chosen_stop(bias.LOGITS), "mars, by turn", bias.AGGREGATES[0])["astray"] > 0.05


@pytest.mark.slow
def test_the_documentation_shows_the_table() -> None:
    assert bias.table(list(bias.rows())) in DOCS.read_text()
