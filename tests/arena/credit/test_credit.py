"""Credit: worked numbers, controls, and each reward reaches the tokens that earned it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.stream import Stream
from arena.credit.assign import assign
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.estimators import ESTIMATORS
from arena.credit.samples import make_samples
from arena.credit.settings import CreditSpec
from arena.records import MatchRecord, Seating, Trajectory, trajectories
from arena.store.matchlog import MatchLog
from arena.store.reader import LogReader
from games.contracts import MatchId
from tests.factories.records import make_match_record, make_turn, wrap_turns
from tests.factories.trajectories import make_trajectory


def assign_credit(trajectories: list[Trajectory], seed: int = 0, **rule: Any) -> list[CreditedTrajectory]:
    return assign(TurnBatch(trajectories, rng=np.random.default_rng(seed)), CreditSpec(**rule))


def compute_advantages(
    trajectories: list[Trajectory], seed: int = 0, estimator: str = "mars", **settings: Any
) -> list[list[float]]:
    return [c.advantages.tolist() for c in assign_credit(trajectories, seed, estimator={estimator: settings})]


def compute_returns(rewards: list[float], gamma: float) -> np.ndarray:
    return TurnBatch([make_trajectory([0.0] * len(rewards))]).returns(np.array(rewards, float), gamma)


def test_returns_to_go_by_hand() -> None:
    # gamma 1: 1+2+4, 2+4, 4.  gamma 0.5: 1 + 0.5*2 + 0.25*4 = 3, 2 + 0.5*4 = 4, 4.  gamma 0: as they are
    assert compute_returns([1, 2, 4], 1.0).tolist() == [7, 6, 4]
    assert compute_returns([1, 2, 4], 0.5).tolist() == [3, 4, 4]
    assert compute_returns([1, 2, 4], 0.0).tolist() == [1, 2, 4]
    assert compute_returns([], 1.0).tolist() == []


def test_mars_by_hand() -> None:
    trajectories = [
        make_trajectory([0, 0, 6]),  # returns 6 6 6
        make_trajectory([2]),  # return 2
        make_trajectory([0, 4], role="responder"),  # returns 4 4, another role: its own mean
        make_trajectory([10], policy="other"),  # another policy: alone, so nothing to compare with
    ]
    # openers of `shared`: mean over turns (6+6+6+2)/4 = 5, not over matches (6+2)/2 = 4
    assert compute_advantages(trajectories) == [[1, 1, 1], [-3], [0, 0], [0]]
    # gamma 0.5: 1.5 3 6 and 2, mean 12.5/4 = 3.125; responder 2 4, mean 3
    assert compute_advantages(trajectories, gamma=0.5) == [[-1.625, -0.125, 2.875], [-1.125], [-1, 1], [0]]
    # one group of all: (18 + 2 + 8 + 10) / 7
    pooled = compute_advantages(trajectories, by=["game"])
    assert pooled[1] == pytest.approx([2 - 38 / 7]) and pooled[2] == pytest.approx([4 - 38 / 7] * 2)


def test_reinforce_is_the_plain_return_to_go() -> None:
    trajectories = [make_trajectory([0, 0, 6]), make_trajectory([1, -4])]
    # 6 6 6; 1 - 4, -4.  gamma 0.5: 6/4 6/2 6; 1 - 4/2, -4
    assert compute_advantages(trajectories, estimator="reinforce") == [[6, 6, 6], [-3, -4]]
    assert compute_advantages(trajectories, estimator="reinforce", gamma=0.5) == [[1.5, 3, 6], [-1, -4]]


def test_std_divides_by_group_deviation() -> None:
    # returns 6 6 6 2: mean 5, variance (1+1+1+9)/4 = 3
    first, second = compute_advantages([make_trajectory([0, 0, 6]), make_trajectory([2])], std=True)
    assert first == pytest.approx([3**-0.5] * 3, rel=1e-5) and second == pytest.approx([-3 * 3**-0.5], rel=1e-5)
    assert compute_advantages([make_trajectory([3]), make_trajectory([3])], std=True) == [[0], [0]]


def test_weights_and_stages_by_hand() -> None:
    turns = (
        make_turn(0, {"deal": 8.0, "illegal": -1.0}),  # 0.1*8 + 2*(-1) + 0.5 (valid)
        make_turn(2, {"chat": 3.0}, valid=False, finish="length", tokens=9),  # 3 (unnamed weight 1) - 0.25 (cut off)
    )
    two_turns = wrap_turns(turns)
    stages = [{"valid_act": {"bonus": 0.5}}, {"cut_off": {"penalty": 0.25}}]
    (credited,) = assign_credit([two_turns], stages=stages, weights={"deal": 0.1, "illegal": 2.0})
    assert credited.rewards.tolist() == pytest.approx([0.8 - 2.0 + 0.5, 3.0 - 0.25])
    length_stage = [{"length": {"penalty": 0.25, "free": 5}}]
    (credited,) = assign_credit([two_turns], stages=length_stage, weights={"length": 2.0, "deal": 0.0})
    assert credited.rewards.tolist() == pytest.approx([-1.0, 3.0 - 2.0 * 0.25 * 4])
    assert turns[1].rewards == {"chat": 3.0}, "the record is unchanged"


reward_lists = st.lists(st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=4), min_size=1, max_size=8)


@given(reward_lists, st.integers(0, 2**16))
def test_shuffled_permutes_within_each_group_only(rewards: list[list[float]], seed: int) -> None:
    trajectories = [make_trajectory(r, ("opener", "responder")[i % 2]) for i, r in enumerate(rewards)]
    permuted = compute_advantages(trajectories, seed, "shuffled", of={"mars": {"gamma": 0.9}})
    honest = compute_advantages(trajectories, seed, "mars", gamma=0.9)
    for role in ("opener", "responder"):
        permuted_values, honest_values = (
            sorted(x for v, t in zip(source, trajectories, strict=True) if t.role == role for x in v)
            for source in (permuted, honest)
        )
        assert permuted_values == pytest.approx(honest_values)
    assert [len(v) for v in permuted] == [len(h) for h in honest]


def test_shuffled_moves_credit_and_repeats_with_its_seed() -> None:
    trajectories = [make_trajectory([float(i)] * 3) for i in range(5)]
    first, repeated, other_seed = (compute_advantages(trajectories, seed, estimator="shuffled") for seed in (1, 1, 2))
    assert first == repeated != other_seed and first != compute_advantages(trajectories)


def test_zero_is_zero() -> None:
    assert compute_advantages([make_trajectory([1, 2]), make_trajectory([5])], estimator="zero") == [[0, 0], [0]]


@given(reward_lists)
def test_every_turn_is_credited_except_at_its_groups_mean(rewards: list[list[float]]) -> None:
    """Invariant 2: mask x advantage is zero only where a turn's return equals its group's mean."""
    trajectories = [make_trajectory(r, ("opener", "responder")[i % 2]) for i, r in enumerate(rewards)]
    credited = assign_credit(trajectories)
    means = {
        role: np.mean(
            np.concatenate(
                [compute_returns(r, 1.0) for t, r in zip(trajectories, rewards, strict=True) if t.role == role]
            )
        )
        for role in {t.role for t in trajectories}
    }
    temperatures = dict.fromkeys(("opener", "responder"), 1.0)
    for t, r, sample in zip(trajectories, rewards, make_samples(credited, temperatures), strict=True):
        values = compute_returns(r, 1.0)
        for k, current in enumerate(t.turns):
            own_advantages = [
                a
                for a, index in zip(sample.advantages, list_sampled_turns(sample.stream), strict=True)
                if index == current.index
            ]
            assert len(own_advantages) == 2
            equal = values[k] == pytest.approx(means[t.role], abs=1e-9)
            assert all((abs(a) < 1e-6) == equal for a in own_advantages)


def list_sampled_turns(stream: Stream) -> list[int]:
    return [turn for turn, is_sampled in zip(stream.turns, stream.mask, strict=True) if is_sampled]


def test_advantages_reach_exactly_the_tokens_of_their_turn() -> None:
    turns = tuple(make_turn(k, {}) for k in (1, 4, 5))
    first, second = Stream(), Stream()
    first.observe([9])
    first.append_sampled([1, 2, 3], [-0.1, -0.2, -0.3], 1)
    first.observe([9, 9])
    first.append_sampled([4], [-0.4], 4)
    second.observe([1, 2, 3])  # a window's new stream: past replies are context
    second.append_sampled([5, 6], [-0.5, -0.6], 5)
    without_tokens = Stream([1], [False], [0.0], [-1])
    three_turns = wrap_turns(turns, streams=(first, without_tokens, second))
    (credited,) = assign_credit([three_turns])
    object.__setattr__(credited, "advantages", np.array([10.0, 20.0, 30.0]))
    samples = make_samples([credited], {"opener": 0.7})
    assert [s.advantages.tolist() for s in samples] == [[10, 10, 10, 20], [30, 30]]
    assert [s.behaviour.tolist() for s in samples] == [
        pytest.approx([-0.1, -0.2, -0.3, -0.4]),
        pytest.approx([-0.5, -0.6]),
    ]
    assert [s.stream for s in samples] == [first, second] and {s.temperature for s in samples} == {0.7}


PARTS = {"weighted_sum": {"parts": [{"estimator": "rae"}, {"estimator": "shuffled", "weight": 0.5}]}}


@pytest.mark.parametrize("estimator", sorted(n for n, f in ESTIMATORS.items() if not getattr(f, "needs", ())))
@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_advantages_from_the_log_equal_those_online(tmp_path: Path, estimator: str, weight: float) -> None:
    rng = np.random.default_rng(0)
    seating = {s: Seating(s, "shared", 1, True, "model") for s in ("opener", "responder")}
    records = []
    for i in range(6):
        turns = tuple(
            make_turn(k, {"deal": float(rng.normal())}, ("opener", "responder")[k % 2], valid=bool(rng.integers(2)))
            for k in range(rng.integers(1, 6))
        )
        records.append(
            make_match_record(identity=MatchId(1, i), game="negotiation", seed=i, seats=seating, turns=turns)
        )
    log = MatchLog(tmp_path / "log")
    for record in records:
        log.extend([record])
    log.seal(1)
    stored = [MatchRecord.from_json(row) for row in LogReader(tmp_path / "log").read(1)]
    rule = {
        "estimator": {estimator: PARTS.get(estimator, {})},
        "stages": [{"valid_act": {"bonus": 0.3}}],
        "weights": {"deal": weight},
    }
    online, offline = (
        assign_credit([t for r in source for t in trajectories(r)], seed=5, **rule) for source in (records, stored)
    )
    for online_credit, offline_credit in zip(online, offline, strict=True):
        assert online_credit.rewards.tolist() == offline_credit.rewards.tolist()
        assert online_credit.advantages.tolist() == offline_credit.advantages.tolist()


def test_empty_batch_is_no_error() -> None:
    assert assign_credit([]) == []
    assert [c.advantages.tolist() for c in assign_credit([make_trajectory([])])] == [[]]
