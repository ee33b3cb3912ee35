"""Generalised advantage estimation: worked numbers, naive loops and invariances."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.stream import Stream
from arena.config.kinds import choose
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.critics.base import Measures
from arena.credit.estimators.gae import compute_token_returns, compute_turn_returns, read_discounts
from arena.credit.settings import CreditSpec
from arena.records import Trajectory
from tests.factories.records import make_turn, wrap_turns
from tests.factories.trajectories import make_trajectory

Shape = list[tuple[int, int, float]]
"""Turn by turn: tokens observed before it, tokens sampled in it, reward."""


def make_shaped_trajectory(shape: Shape, role: str = "opener", window: bool = False) -> Trajectory:
    """Return a trajectory of that shape, in one stream or (`window`) in one per turn."""
    turns = tuple(make_turn(2 * k, {"deal": r}, seat=role, role=role) for k, (_, _, r) in enumerate(shape))
    streams = [Stream()]
    for current, (observed, sampled, _) in zip(turns, shape, strict=True):
        streams[-1].observe([1] * observed)
        streams[-1].append_sampled([2] * sampled, [-1.0] * sampled, current.index)
        streams += [Stream()] if window else []
    return wrap_turns(turns, seat=role, role=role, streams=tuple(streams))


def make_batch(trajectories: list[Trajectory], **measures: list[list[float]]) -> TurnBatch:
    arrays = {name: [np.array(v, np.float32) for v in values] for name, values in measures.items()}
    return TurnBatch(trajectories, measures=arrays)


def flatten_rewards(shapes: list[Shape]) -> np.ndarray:
    return np.array([r for shape in shapes for _, _, r in shape], float)


def compute_advantages(name: str, shapes: list[Shape], values: list[list[float]], **settings: Any) -> list[float]:
    """Return the advantages: per turn for gae_turn, per token for the others. `values` are per trajectory."""
    measure = "values" if name == "gae_turn" else "token_values"
    window = settings.pop("window", False)
    batch = make_batch([make_shaped_trajectory(shape, window=window) for shape in shapes], **{measure: values})
    advantages = choose("estimator", name, **settings)(batch, flatten_rewards(shapes))
    return (advantages if name == "gae_turn" else advantages.values).tolist()


TWO_TURNS: Shape = [(3, 2, 1.0), (1, 2, 4.0)]


def test_gae_turn_by_hand() -> None:
    # γ = λ = .5, V = 1 2 3: δ = .5·2-1, .5·3-2, 6-3 = 0, -.5, 3.  A_2 = 3, A_1 = -.5+.25·3 = .25, A_0 = 0+.25·.25
    shape: Shape = [(1, 1, 0.0), (1, 1, 0.0), (1, 1, 6.0)]
    assert compute_advantages("gae_turn", [shape], [[1, 2, 3]], gamma=0.5, lam=0.5) == [0.0625, 0.25, 3]
    # λ = 0: the δ alone
    assert compute_advantages("gae_turn", [shape], [[1, 2, 3]], gamma=0.5, lam=0.0) == [0, -0.5, 3]


def test_gae_token_by_hand() -> None:
    # r = 0 1 | 0 4, V = 1 2 | 3 4, γ = λ = .5: δ = .5·2-1, 1+.5·3-2, .5·4-3, 4-4 = 0, .5, -1, 0
    # A_3 = 0, A_2 = -1, A_1 = .5 - .25·1 = .25, A_0 = .25·.25: across the turn's end like anywhere else
    assert compute_advantages("gae_token", [TWO_TURNS], [[1, 2, 3, 4]], gamma=0.5, lam=0.5) == [0.0625, 0.25, -1, 0]


def test_gae_bilevel_by_hand() -> None:
    # ends: r = 1, 4 and V = 2, 4; turn γ = λ = .5: δ = 1+.5·4-2, 4-4 = 1, 0, so the ends are worth 1+2 and 0+4
    # inside, γ = 1: second turn δ = 1·4-3, 4-4 = 1, 0: A = 1+.5·0, 0; first δ = 2-1, 3-2 = 1, 1: A = 1+.5·1, 1
    shapes = compute_advantages("gae_bilevel", [TWO_TURNS], [[1, 2, 3, 4]], lam=0.5, turn_gamma=0.5)
    assert shapes == [1.5, 1, 1, 0]
    # a turn without reward is a turn: ends r = 0, 4: δ = .5·4-2, 0, worth 2 and 4; first turn δ = 2-1, 2-2
    unrewarded: Shape = [(3, 2, 0.0), (1, 2, 4.0)]
    assert compute_advantages("gae_bilevel", [unrewarded], [[1, 2, 3, 4]], lam=0.5, turn_gamma=0.5) == [1, 0, 1, 0]


def test_perfect_critic_gives_zero_advantages() -> None:
    for name in ("gae_turn", "gae_token", "gae_bilevel"):
        values: list[list[float]] = [[5, 4]] if name == "gae_turn" else [[5, 5, 4, 4]]
        settings = {"turn_gamma": 1.0} if name == "gae_bilevel" else {}
        assert set(compute_advantages(name, [TWO_TURNS], values, lam=0.7, **settings)) == {0}


shape_lists = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(-3, 3).map(float)), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)
shares = st.sampled_from([0.0, 0.3, 0.9, 1.0])


def draw_values(sizes: list[int], seed: int) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=n).astype(np.float32).tolist() for n in sizes]


def count_tokens(shape: Shape) -> int:
    return sum(sampled for _, sampled, _ in shape)


@given(shape_lists, st.integers(0, 99), shares, shares)
def test_gae_turn_equals_naive_loop(shapes: list[Shape], seed: int, gamma: float, lam: float) -> None:
    values = draw_values([len(shape) for shape in shapes], seed)
    expected = []
    for shape, own_values in zip(shapes, values, strict=True):
        advantage, following, backwards = 0.0, 0.0, []
        for (_, _, reward), value in zip(reversed(shape), reversed(own_values), strict=True):
            advantage = reward + gamma * following - value + gamma * lam * advantage
            following = value
            backwards.append(advantage)
        expected += backwards[::-1]
    assert compute_advantages("gae_turn", shapes, values, gamma=gamma, lam=lam) == pytest.approx(expected)


def list_masked_rows(shape: Shape, values: list[float]) -> list[tuple[bool, float, float, bool]]:
    """Return the padded stream's rows (sampled, reward, value, ends a turn); observed tokens have arbitrary values."""
    rows, own_values = [], iter(values)
    for observed, sampled, reward in shape:
        rows += [(False, 0.0, 77.0, False)] * observed
        rows += [
            (True, reward if k == sampled - 1 else 0.0, next(own_values), k == sampled - 1) for k in range(sampled)
        ]
    return [*rows, *[(False, 0.0, -88.0, False)] * 3]


@given(shape_lists, st.integers(0, 99), shares, shares, st.booleans())
def test_gae_token_equals_masked_loop(shapes: list[Shape], seed: int, gamma: float, lam: float, window: bool) -> None:
    """Loop over the whole stream; observed tokens carry value and advantage on unchanged."""
    values = draw_values([count_tokens(shape) for shape in shapes], seed)
    expected = []
    for shape, own_values in zip(shapes, values, strict=True):
        following = advantage = 0.0
        backwards = []
        for sampled, reward, value, _ in reversed(list_masked_rows(shape, own_values)):
            if sampled:
                advantage = reward + gamma * following - value + gamma * lam * advantage
                following = value
                backwards.append(advantage)
        expected += backwards[::-1]
    assert compute_advantages("gae_token", shapes, values, gamma=gamma, lam=lam, window=window) == pytest.approx(
        expected
    )


@given(shape_lists, st.integers(0, 99), shares, shares, shares)
def test_gae_bilevel_equals_loop_over_turns_then_tokens(
    shapes: list[Shape], seed: int, gamma: float, lam: float, turn_gamma: float
) -> None:
    values = draw_values([count_tokens(shape) for shape in shapes], seed)
    expected = []
    for shape, own_values in zip(shapes, values, strict=True):
        rows = [row for row in list_masked_rows(shape, own_values) if row[0]]
        worth, following, advantage = {}, 0.0, 0.0
        for t in reversed([t for t, row in enumerate(rows) if row[3]]):
            _, reward, value, _ = rows[t]
            advantage = reward + turn_gamma * following - value + turn_gamma * lam * advantage
            following, worth[t] = value, advantage + value
        backwards, following, advantage = [], 0.0, 0.0
        for t in reversed(range(len(rows))):
            if rows[t][3]:
                following = advantage = 0.0
            advantage = worth.get(t, 0.0) + gamma * following - rows[t][2] + gamma * lam * advantage
            following = rows[t][2]
            backwards.append(advantage)
        expected += backwards[::-1]
    actual = compute_advantages("gae_bilevel", shapes, values, gamma=gamma, lam=lam, turn_gamma=turn_gamma)
    assert actual == pytest.approx(expected, abs=1e-9)


@given(shape_lists, st.integers(0, 99), st.integers(1, 50))
def test_observation_length_changes_nothing(shapes: list[Shape], seed: int, extra: int) -> None:
    longer = [[(observed + extra, sampled, reward) for observed, sampled, reward in shape] for shape in shapes]
    values = draw_values([count_tokens(shape) for shape in shapes], seed)
    for name in ("gae_token", "gae_bilevel"):
        original, changed = (compute_advantages(name, each, values, gamma=0.9, lam=0.8) for each in (shapes, longer))
        assert original == changed


@given(shape_lists, st.integers(0, 99))
def test_batch_order_and_composition_change_nothing(shapes: list[Shape], seed: int) -> None:
    for name in ("gae_turn", "gae_token", "gae_bilevel"):
        size = len if name == "gae_turn" else count_tokens
        values = draw_values([size(shape) for shape in shapes], seed)
        together = compute_advantages(name, shapes, values, gamma=0.9, lam=0.8)
        reversed_advantages = compute_advantages(name, shapes[::-1], values[::-1], gamma=0.9, lam=0.8)
        separate = [
            compute_advantages(name, [shape], [own_values], gamma=0.9, lam=0.8)
            for shape, own_values in zip(shapes, values, strict=True)
        ]
        assert together == pytest.approx([a for own_values in separate for a in own_values], abs=1e-12)
        assert reversed_advantages == pytest.approx([a for own_values in separate[::-1] for a in own_values], abs=1e-12)


@given(shape_lists, shares, shares)
def test_zero_values_give_the_return(shapes: list[Shape], gamma: float, turn_gamma: float) -> None:
    """With V = 0 and λ = 1 the estimator gives the critic's targets."""
    batch, rewards = make_batch([make_shaped_trajectory(shape) for shape in shapes]), flatten_rewards(shapes)
    turns, tokens = [[0.0] * len(s) for s in shapes], [[0.0] * count_tokens(s) for s in shapes]
    returns = compute_turn_returns(batch, rewards, read_discounts(choose("estimator", "gae_turn", gamma=gamma)))
    assert returns.tolist() == batch.returns(rewards, gamma).tolist()
    assert compute_advantages("gae_turn", shapes, turns, gamma=gamma) == pytest.approx(returns.tolist())
    for name, settings in (("gae_token", {}), ("gae_bilevel", {"turn_gamma": turn_gamma})):
        discounts = read_discounts(choose("estimator", name, gamma=gamma, **settings))
        expected = compute_token_returns(batch, rewards, discounts).tolist()
        assert compute_advantages(name, shapes, tokens, gamma=gamma, **settings) == pytest.approx(expected, abs=1e-12)


def test_token_returns_by_hand() -> None:
    # γ = .5 from token to token: 4, 2 | 1 + .5·2 = 2, 1
    batch, rewards = make_batch([make_shaped_trajectory(TWO_TURNS)]), flatten_rewards([TWO_TURNS])
    discounts = read_discounts(choose("estimator", "gae_token", gamma=0.5))
    assert compute_token_returns(batch, rewards, discounts).tolist() == [1, 2, 2, 4]
    # a head that serves gae_turn: whole within a turn, .5 from turn to turn: 1 + .5·4 = 3
    discounts = read_discounts(choose("estimator", "gae_turn", gamma=0.5))
    assert compute_token_returns(batch, rewards, discounts).tolist() == [3, 3, 4, 4]
    # bi-level: .5 within, .25 from turn to turn: 1 + .25·4 = 2
    discounts = read_discounts(choose("estimator", "gae_bilevel", gamma=0.5, turn_gamma=0.25))
    assert compute_token_returns(batch, rewards, discounts).tolist() == [1, 2, 2, 4]


@given(shape_lists)
def test_gae_turn_with_group_means_as_values_equals_mars(shapes: list[Shape]) -> None:
    roles = ["opener", "responder"]
    several = [make_shaped_trajectory(shape, roles[i % 2]) for i, shape in enumerate(shapes)]
    batch_without_values = TurnBatch(several)
    rewards = flatten_rewards(shapes)
    means = batch_without_values.mean_by(
        batch_without_values.returns(rewards), batch_without_values.groups(["game", "role", "policy"])
    )
    measures: Measures = {"values": np.split(means, batch_without_values.starts[1:-1])}
    advantages = choose("estimator", "gae_turn")(TurnBatch(several, measures=measures), rewards)
    assert advantages.tolist() == pytest.approx(
        choose("estimator", "mars")(batch_without_values, rewards).tolist(), abs=1e-9
    )


def test_turn_without_tokens_is_rewarded_at_the_previous_token() -> None:
    turns = tuple(make_turn(k, {}) for k in range(4))
    stream = Stream()
    stream.append_sampled([1, 2], [-1.0, -1.0], 1)
    stream.append_sampled([3], [-1.0], 3)
    rollout = wrap_turns(turns, streams=(stream,))
    batch = make_batch([rollout, rollout], token_values=[[0, 0, 0], [0, 0, 0]])
    # turn 0 has none before it: its 8 is lost; turn 2's 2 comes at turn 1's last token
    advantages = choose("estimator", "gae_token", gamma=0.5)(batch, np.array([8.0, 1.0, 2.0, 4.0] * 2)).values
    assert advantages.tolist() == [0.5 * (3 + 0.5 * 4), 3 + 0.5 * 4, 4] * 2


def test_whitening_equals_the_transform() -> None:
    trajectories = [make_trajectory([1.0, 4.0]), make_trajectory([0.0])]
    measures = {"token_values": [np.zeros(4, np.float32), np.zeros(2, np.float32)]}
    rule = CreditSpec.model_validate(dict(estimator={"gae_token": {}}, transforms=["whiten"]))
    tokens = np.concatenate(
        [c.tokens for c in assign(TurnBatch(trajectories, measures=measures), rule) if c.tokens is not None]
    )
    returns = np.array([5, 5, 4, 4, 0, 0], float)
    assert tokens == pytest.approx((returns - returns.mean()) / (returns.std() + 1e-6))


def test_empty_batch_is_no_error() -> None:
    for name in ("gae_turn", "gae_token", "gae_bilevel", "archer"):
        measures: dict[str, list[Any]] = {key: [] for key in ("values", "token_values", "action_values")}
        assert assign(TurnBatch([], measures=measures), CreditSpec.model_validate(dict(estimator=name))) == []
        empty = {measure: [np.zeros(0, np.float32)] for measure in measures}
        (credited,) = assign(
            TurnBatch([make_trajectory([])], measures=empty), CreditSpec.model_validate(dict(estimator=name))
        )
        assert credited.advantages.tolist() == []
