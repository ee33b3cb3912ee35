"""Transforms of advantages: numbers worked by hand, whose tokens they look at, and the way through `assign`."""

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
from arena.records import Trajectory, Turn
from tests.factories.trajectories import wrap_turns


def spoken(tokens: Sequence[int], role: str = "opener", policy: str = "shared", seed: int = 0) -> Trajectory:
    """A trajectory of turns with so many sampled tokens each, all earning 1."""
    turns, stream = [], Stream()
    for k, count in enumerate(tokens):
        stream.observe([1, 2])
        stream.append_sampled([5] * count, [-1.0] * count, k)
        turns.append(
            Turn(
                index=k,
                seat=role,
                role=role,
                policy=policy,
                version=1,
                messages=(),
                raw="x",
                public="",
                private="",
                action="x",
                valid=True,
                rewards={"deal": 1.0},
                finish="stop",
                tokens=count,
                seconds=0.0,
            ),
        )
    return wrap_turns(tuple(turns), seat=role, role=role, policy=policy, streams=(stream,), seed=seed)


def applied(
    transform: str, found: Sequence[Trajectory], values: Sequence[float] | np.ndarray, **changes: Any
) -> list[float]:
    settings = {name: changes.pop(name) for name in ("by", "alpha") if name in changes}
    batch = TurnBatch(list(found), **changes)
    done: np.ndarray = choose("transform", transform, **settings)(batch, np.array(values, np.float64))
    return done.tolist()


def test_whiten_by_hand() -> None:
    # tokens 1 1 1 5: mean 2, population variance (1 + 1 + 1 + 9)/4 = 3
    root = 3**0.5
    assert applied("whiten", [spoken([3, 1])], [1, 1, 1, 5]) == pytest.approx([-1 / root] * 3 + [root], abs=1e-5)
    assert applied("whiten", [spoken([2])], [4, 4]) == [0, 0] and applied("whiten", [], []) == []


def test_whiten_keeps_policies_apart_and_other_groups_if_asked() -> None:
    found = [spoken([1]), spoken([1], "responder"), spoken([2], policy="other")]
    # shared 1 3: ±1; other 10 20: ±1
    assert applied("whiten", found, [1, 3, 10, 20]) == pytest.approx([-1, 1, -1, 1], abs=1e-5)
    assert applied("whiten", found, [1, 3, 10, 20], by=["policy", "role"])[:2] == [0, 0]
    whole = np.array([1.0, 3, 10, 20])
    assert applied("whiten", found, whole, by=[]) == pytest.approx(((whole - 8.5) / whole.std()).tolist(), abs=1e-5)
    # by turn number: first turns 0 2, second turns 5 9
    turns = [spoken([1, 1]), spoken([1, 1])]
    assert applied("whiten", turns, [0, 5, 2, 9], by=["turn"]) == pytest.approx([-1, -1, 1, 1], abs=1e-5)


def test_entropy_scale_by_hand() -> None:
    # entropies 0 1 1 2: mean 1, population deviation √.5: z -√2 0 0 √2
    measures = {"entropy": [np.array([0.0, 1.0], np.float32), np.array([1.0, 2.0], np.float32)]}
    found = [spoken([1, 1]), spoken([2])]
    louder = 2**0.5
    done = applied("entropy_scale", found, [1, -2, 3, -1], measures=measures)
    assert done == pytest.approx([1 - 0.2 * louder, -2, 3, -(1 + 0.2 * louder)], abs=1e-5)
    assert applied("entropy_scale", found, [1, -2, 3, -1], measures=measures, alpha=0.0) == [1, -2, 3, -1]
    strong = applied("entropy_scale", found, [1, -2, 3, -1], measures=measures, alpha=1.0)
    assert strong[0] == pytest.approx(1 - louder, abs=1e-5), "far below the mean the sign turns"


def test_entropy_scale_as_in_the_release() -> None:
    rng = np.random.default_rng(0)
    entropy, values = rng.gamma(2.0, size=50), rng.normal(size=50)
    mine = applied("entropy_scale", [spoken([20, 30])], values.tolist(), measures={"entropy": [entropy]})
    h = torch.from_numpy(entropy)
    theirs = torch.from_numpy(values) * (1 + 0.2 * (h - h.mean()) / h.std())  # over n - 1, ours over n: √(50/49)
    assert mine == pytest.approx(theirs.tolist(), abs=0.02)


def test_the_same_entropy_everywhere_changes_nothing() -> None:
    measures = {"entropy": [np.full(3, 0.7, np.float32)]}
    assert applied("entropy_scale", [spoken([3])], [1, 2, 3], measures=measures) == [1, 2, 3]


def test_dealt_measures_weigh_as_strongly_elsewhere() -> None:
    """All advantages 1: what comes out are the factors, those of `entropy_scale` in another order."""
    rng = np.random.default_rng(0)
    found, entropy = [spoken([20, 30]), spoken([25], policy="other")], rng.gamma(2.0, size=75).astype(np.float32)
    measures = {"entropy": [entropy[:50], entropy[50:]]}
    honest = applied("entropy_scale", found, [1.0] * 75, measures=measures)
    dealt = applied("dealt_measures", found, [1.0] * 75, measures=measures)
    assert np.mean(np.isclose(dealt, honest)) < 0.2
    for own in (slice(0, 50), slice(50, 75)):
        assert sorted(dealt[own]) == pytest.approx(sorted(honest[own]))
    assert dealt == applied("dealt_measures", found, [1.0] * 75, measures=measures), "the same seed deals the same"


def test_entropy_is_asked_for() -> None:
    rule = CreditSpec.model_validate(dict(transforms=["entropy_scale"]))
    assert rule.needs == {"entropy"} and not CreditSpec.model_validate(dict(transforms=["whiten"])).needs
    assert CreditSpec.model_validate(dict(transforms=["dealt_measures"])).needs == {"entropy"}
    with pytest.raises(KeyError, match="entropy"):
        assign(TurnBatch([spoken([1])]), rule)


def test_tokens_out_of_the_statistics_move_nobody() -> None:
    found, counted = [spoken([1]), spoken([1]), spoken([2])], np.array([True, True, False])
    measures = {"entropy": [np.array(x, np.float32) for x in ([0.0], [2.0], [100.0, 3.0])]}
    # whiten: 1 3 give ±1; 10 and 2 are 8 and 0 deviations of 1 away from 2
    assert applied("whiten", found, [1, 3, 10, 2], counted=counted) == pytest.approx([-1, 1, 8, 0], abs=1e-4)
    scaled = applied("entropy_scale", found, [1, 1, 1, 1], counted=counted, measures=measures)
    assert scaled[:2] == pytest.approx([0.8, 1.2], abs=1e-5)
    nobody = np.zeros(3, bool)
    assert applied("whiten", found, [1, 3, 10, 2], counted=nobody) == [0, 0, 0, 0]


def test_through_assign_in_order_and_after_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_out(batch: TurnBatch, rewards: np.ndarray, selection: Selection) -> Selection:
        return selection.exclude_from_statistics(np.arange(len(batch.lengths)) == len(batch.lengths) - 1)

    monkeypatch.setitem(SELECTORS, "last_out", last_out)
    found = [spoken([1, 3]), spoken([2]), spoken([1])]
    entropy = [np.array(x, np.float32) for x in ([0, 1, 1, 2], [1, 1], [9])]
    rule = CreditSpec.model_validate(dict(select=["last_out"], transforms=["entropy_scale", "whiten"]))
    credited = assign(TurnBatch(found, measures={"entropy": entropy}), rule)
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
    found = [spoken(t, policy=("shared", "other")[i % 2]) for i, t in enumerate(tokens)]
    values = [rng.normal(size=sum(t)) for t in tokens]
    entropy = [rng.gamma(2.0, size=sum(t)) for t in tokens]
    order = list(range(len(found)))
    random.shuffle(order)
    for transform in ("whiten", "entropy_scale"):
        straight, mixed = (
            applied(
                transform,
                [found[i] for i in rows],
                np.concatenate([values[i] for i in rows]).tolist(),
                measures={"entropy": [entropy[i] for i in rows]},
            )
            for rows in (range(len(found)), order)
        )
        cuts = np.cumsum([sum(t) for t in tokens])[:-1]
        parts = np.split(np.array(straight), cuts)
        assert mixed == pytest.approx(np.concatenate([parts[i] for i in order]).tolist(), abs=1e-6)
