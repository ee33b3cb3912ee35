"""Two ranks learn what one learns: the same weights to 1e-5, and the same gradients, under every ZeRO stage.

No gradient is clipped: that would hide a wrong scale, as Adam nearly does; so its first moments are compared too.
"""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from arena.learn.base import MakeTrainer
from arena.learn.trainer import create_local_trainer
from tests.factories.samples import STAGES
from tests.factories.scaled import CASES, TrainingResult, train_case

ray = pytest.importorskip("ray")

from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402

pytestmark = pytest.mark.slow  # a cluster for itself: `make test-scale`
CLOSE = 1e-5


@cache
def learn_on_one_rank(name: str) -> TrainingResult:
    """Return what a single rank in this process learns, without ZeRO."""
    return train_case(create_local_trainer, CASES[name])


def assert_equal_results(result: TrainingResult, name: str) -> None:
    expected = learn_on_one_rank(name)
    weight, gradient = expected.compute_differences(result)
    assert weight < CLOSE and gradient < 1e-4, f"{name}: weights differ by {weight:.2g}, moments by {gradient:.2g}"
    np.testing.assert_allclose(result.scores, expected.scores, atol=1e-4)
    for actual_metrics, expected_metrics in zip(result.metrics, expected.metrics, strict=True):
        assert actual_metrics == pytest.approx(expected_metrics, rel=1e-3, abs=1e-5)
    assert [state["steps"] for state in result.states] == [state["steps"] for state in expected.states]


@pytest.fixture
def make_two_rank_trainer(ranks: Ranks) -> MakeTrainer:
    return partial(ScaledTrainer, ranks)


@pytest.mark.parametrize(("stage", "name"), [(0, "pairs by dpo"), (3, "demonstrations")])
def test_two_ranks_learn_the_same_as_one(stage: Any, name: str, make_two_rank_trainer: MakeTrainer) -> None:
    result = train_case(make_two_rank_trainer, CASES[name], zero_stage=stage)
    assert_equal_results(result, name)
    assert result.max_change(CASES[name]) > 5 * CASES[name].spec().lr, "the weights changed"


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CASES)
def test_all_updates_are_equal_on_two_ranks(stage: Any, name: str, make_two_rank_trainer: MakeTrainer) -> None:
    assert_equal_results(train_case(make_two_rank_trainer, CASES[name], zero_stage=stage), name)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("name", ["packed ragged", "adapter"])
def test_offloaded_moments_are_equal(stage: Any, name: str, make_two_rank_trainer: MakeTrainer) -> None:
    assert_equal_results(train_case(make_two_rank_trainer, CASES[name], zero_stage=stage, offload_optimizer=True), name)
