"""Transforms of advantages: numbers worked by hand, the tokens they use, and their order in `assign`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.stream import Stream
from arena.config.kinds import choose
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.selection import SELECTORS, Selection
from arena.credit.settings import CreditSpec
from arena.records import Trajectory
from tests.factories.records import make_turn, wrap_turns


def make_trajectory(tokens: Sequence[int], role: str = "opener", policy: str = "shared", seed: int = 0) -> Trajectory:
    """Return a trajectory whose turns have these counts of sampled tokens and earn 1 each."""
    turns, stream = [], Stream()
    for k, count in enumerate(tokens):
        stream.observe([1, 2])
        stream.append_sampled([5] * count, [-1.0] * count, k)
        turns.append(make_turn(k, {"deal": 1.0}, role, policy=policy, tokens=count))
    return wrap_turns(turns, streams=(stream,), seed=seed)


def apply_transform(
    transform: str, trajectories: Sequence[Trajectory], values: Sequence[float] | np.ndarray, **changes: Any
) -> list[float]:
    settings = {name: changes.pop(name) for name in ("by", "alpha") if name in changes}
    batch = TurnBatch(list(trajectories), **changes)
    transformed: np.ndarray = choose("transform", transform, **settings)(batch, np.array(values, np.float64))
    return transformed.tolist()


def test_whiten_by_hand() -> None:
    # tokens 1 1 1 5: mean 2, population variance (1 + 1 + 1 + 9)/4 = 3
    root = 3**0.5
    assert apply_transform("whiten", [make_trajectory([3, 1])], [1, 1, 1, 5]) == pytest.approx(
        [-1 / root] * 3 + [root], abs=1e-5
    )
    assert (
        apply_transform("whiten", [make_trajectory([2])], [4, 4]) == [0, 0] and apply_transform("whiten", [], []) == []
    )


def test_whiten_separates_policies_and_requested_groups() -> None:
    trajectories = [make_trajectory([1]), make_trajectory([1], "responder"), make_trajectory([2], policy="other")]
    # shared 1 3: ±1; other 10 20: ±1
    assert apply_transform("whiten", trajectories, [1, 3, 10, 20]) == pytest.approx([-1, 1, -1, 1], abs=1e-5)
    assert apply_transform("whiten", trajectories, [1, 3, 10, 20], by=["policy", "role"])[:2] == [0, 0]
    values = np.array([1.0, 3, 10, 20])
    assert apply_transform("whiten", trajectories, values, by=[]) == pytest.approx(
        ((values - 8.5) / values.std()).tolist(), abs=1e-5
    )
    # by turn number: first turns 0 2, second turns 5 9
    turns = [make_trajectory([1, 1]), make_trajectory([1, 1])]
    assert apply_transform("whiten", turns, [0, 5, 2, 9], by=["turn"]) == pytest.approx([-1, -1, 1, 1], abs=1e-5)


def test_entropy_scale_by_hand() -> None:
    # entropies 0 1 1 2: mean 1, population deviation √.5: z -√2 0 0 √2
    measures = {"entropy": [np.array([0.0, 1.0], np.float32), np.array([1.0, 2.0], np.float32)]}
    trajectories = [make_trajectory([1, 1]), make_trajectory([2])]
    root_two = 2**0.5
    scaled = apply_transform("entropy_scale", trajectories, [1, -2, 3, -1], measures=measures)
    assert scaled == pytest.approx([1 - 0.2 * root_two, -2, 3, -(1 + 0.2 * root_two)], abs=1e-5)
    assert apply_transform("entropy_scale", trajectories, [1, -2, 3, -1], measures=measures, alpha=0.0) == [
        1,
        -2,
        3,
        -1,
    ]
    strong = apply_transform("entropy_scale", trajectories, [1, -2, 3, -1], measures=measures, alpha=1.0)
    assert strong[0] == pytest.approx(1 - root_two, abs=1e-5), "far below the mean the sign turns"


def test_entropy_scale_matches_the_release() -> None:
    rng = np.random.default_rng(0)
    entropy, values = rng.gamma(2.0, size=50), rng.normal(size=50)
    actual = apply_transform(
        "entropy_scale", [make_trajectory([20, 30])], values.tolist(), measures={"entropy": [entropy]}
    )
    h = torch.from_numpy(entropy)
    expected = torch.from_numpy(values) * (1 + 0.2 * (h - h.mean()) / h.std())  # over n - 1, ours over n: √(50/49)
    assert actual == pytest.approx(expected.tolist(), abs=0.02)


def test_equal_entropies_change_nothing() -> None:
    measures = {"entropy": [np.full(3, 0.7, np.float32)]}
    assert apply_transform("entropy_scale", [make_trajectory([3])], [1, 2, 3], measures=measures) == [1, 2, 3]


def test_dealt_measures_permute_the_factors() -> None:
    """With advantages of 1 the results are the factors: those of `entropy_scale` in another order."""
    rng = np.random.default_rng(0)
    trajectories, entropy = (
        [make_trajectory([20, 30]), make_trajectory([25], policy="other")],
        rng.gamma(2.0, size=75).astype(np.float32),
    )
    measures = {"entropy": [entropy[:50], entropy[50:]]}
    factors = apply_transform("entropy_scale", trajectories, [1.0] * 75, measures=measures)
    permuted = apply_transform("dealt_measures", trajectories, [1.0] * 75, measures=measures)
    assert np.mean(np.isclose(permuted, factors)) < 0.2
    for rows in (slice(0, 50), slice(50, 75)):
        assert sorted(permuted[rows]) == pytest.approx(sorted(factors[rows]))
    assert permuted == apply_transform("dealt_measures", trajectories, [1.0] * 75, measures=measures), (
        "the same seed deals the same"
    )


def test_entropy_is_listed_in_needs() -> None:
    rule = CreditSpec.model_validate(dict(transforms=["entropy_scale"]))
    assert rule.needs == {"entropy"} and not CreditSpec.model_validate(dict(transforms=["whiten"])).needs
    assert CreditSpec.model_validate(dict(transforms=["dealt_measures"])).needs == {"entropy"}
    with pytest.raises(KeyError, match="entropy"):
        assign(TurnBatch([make_trajectory([1])]), rule)


def test_excluded_tokens_do_not_change_statistics() -> None:
    trajectories, counted = (
        [make_trajectory([1]), make_trajectory([1]), make_trajectory([2])],
        np.array([True, True, False]),
    )
    measures = {"entropy": [np.array(x, np.float32) for x in ([0.0], [2.0], [100.0, 3.0])]}
    # whiten: 1 3 give ±1; 10 and 2 are 8 and 0 deviations of 1 away from 2
    assert apply_transform("whiten", trajectories, [1, 3, 10, 2], counted=counted) == pytest.approx(
        [-1, 1, 8, 0], abs=1e-4
    )
    scaled = apply_transform("entropy_scale", trajectories, [1, 1, 1, 1], counted=counted, measures=measures)
    assert scaled[:2] == pytest.approx([0.8, 1.2], abs=1e-5)
    none_counted = np.zeros(3, bool)
    assert apply_transform("whiten", trajectories, [1, 3, 10, 2], counted=none_counted) == [0, 0, 0, 0]


def test_assign_applies_transforms_in_order_after_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    def exclude_last(batch: TurnBatch, rewards: np.ndarray, selection: Selection) -> Selection:
        return selection.exclude_from_statistics(np.arange(len(batch.lengths)) == len(batch.lengths) - 1)

    monkeypatch.setitem(SELECTORS, "exclude_last", exclude_last)
    trajectories = [make_trajectory([1, 3]), make_trajectory([2]), make_trajectory([1])]
    entropy = [np.array(x, np.float32) for x in ([0, 1, 1, 2], [1, 1], [9])]
    rule = CreditSpec.model_validate(dict(select=["exclude_last"], transforms=["entropy_scale", "whiten"]))
    credited = assign(TurnBatch(trajectories, measures={"entropy": entropy}), rule)
    # mars: returns 2 1 and 1 of those that count, mean 4/3; z(H) over 0 1 1 2 1 1: mean 1, variance 1/3
    scale = 1 + 0.2 * (np.array([0, 1, 1, 2, 1, 1]) - 1) * 3**0.5
    values = np.array([2 / 3, -1 / 3, -1 / 3, -1 / 3, -1 / 3, -1 / 3]) * scale
    expected = (values - values.mean()) / values.std()
    tokens = np.concatenate([c.tokens for c in credited[:2] if c.tokens is not None])
    assert tokens == pytest.approx(expected, abs=1e-4)
    assert credited[0].advantages.tolist() == pytest.approx([expected[0], expected[1:4].mean()], abs=1e-4)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=5), st.randoms())
def test_permuting_trajectories_permutes_tokens(tokens: list[list[int]], random: Any) -> None:
    rng = np.random.default_rng(0)
    trajectories = [make_trajectory(t, policy=("shared", "other")[i % 2]) for i, t in enumerate(tokens)]
    values = [rng.normal(size=sum(t)) for t in tokens]
    entropy = [rng.gamma(2.0, size=sum(t)) for t in tokens]
    order = list(range(len(trajectories)))
    random.shuffle(order)
    for transform in ("whiten", "entropy_scale"):
        original, permuted = (
            apply_transform(
                transform,
                [trajectories[i] for i in rows],
                np.concatenate([values[i] for i in rows]).tolist(),
                measures={"entropy": [entropy[i] for i in rows]},
            )
            for rows in (range(len(trajectories)), order)
        )
        cuts = np.cumsum([sum(t) for t in tokens])[:-1]
        parts = np.split(np.array(original), cuts)
        assert permuted == pytest.approx(np.concatenate([parts[i] for i in order]).tolist(), abs=1e-6)
