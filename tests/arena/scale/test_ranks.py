"""Two ranks learn what one learns: the same weights to 1e-5, and the same gradients, under every ZeRO stage.

No gradient is clipped: that would hide a wrong scale, as Adam nearly does; so its first moments are compared too.
"""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from arena.learn.base import MakeTrainer
from arena.learn.trainer import local_trainer
from tests.factories.samples import STAGES
from tests.factories.scaled import CASES, TrainingResult, train_case

ray = pytest.importorskip("ray")

from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402

pytestmark = pytest.mark.slow  # a cluster for itself: `make test-scale`
CLOSE = 1e-5


@cache
def by_one(name: str) -> TrainingResult:
    """What a single rank in this process learns, without ZeRO."""
    return train_case(local_trainer, CASES[name])


def equal(found: TrainingResult, name: str) -> None:
    alone = by_one(name)
    weight, gradient = alone.compute_differences(found)
    assert weight < CLOSE and gradient < 1e-4, f"{name}: weights differ by {weight:.2g}, moments by {gradient:.2g}"
    np.testing.assert_allclose(found.scores, alone.scores, atol=1e-4)
    for one, other in zip(found.metrics, alone.metrics, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
    assert [state["steps"] for state in found.states] == [state["steps"] for state in alone.states]


@pytest.fixture
def on_two(ranks: Ranks) -> MakeTrainer:
    return partial(ScaledTrainer, ranks)


@pytest.mark.parametrize(("stage", "name"), [(0, "pairs by dpo"), (3, "demonstrations")])
def test_two_ranks_learn_what_one_does(stage: Any, name: str, on_two: MakeTrainer) -> None:
    found = train_case(on_two, CASES[name], zero_stage=stage)
    equal(found, name)
    assert found.max_change(CASES[name]) > 5 * CASES[name].spec().lr, "something was learned"


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_update_is_the_same_on_two_ranks(stage: Any, name: str, on_two: MakeTrainer) -> None:
    equal(train_case(on_two, CASES[name], zero_stage=stage), name)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("name", ["packed ragged", "adapter"])
def test_offloaded_moments_are_the_same(stage: Any, name: str, on_two: MakeTrainer) -> None:
    equal(train_case(on_two, CASES[name], zero_stage=stage, offload_optimizer=True), name)
