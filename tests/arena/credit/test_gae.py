"""Generalised advantage estimation: worked numbers, naive loops, and what must not change anything."""

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
from tests.factories.trajectories import make_trajectory, make_turn, wrap_turns

Shape = list[tuple[int, int, float]]
"""Turn by turn: tokens observed before it, tokens sampled in it, reward."""


def played(shape: Shape, role: str = "opener", window: bool = False) -> Trajectory:
    """A trajectory of that shape, in one stream or in one per turn."""
    turns = tuple(make_turn(2 * k, {"deal": r}, seat=role, role=role) for k, (_, _, r) in enumerate(shape))
    streams = [Stream()]
    for one, (seen, said, _) in zip(turns, shape, strict=True):
        streams[-1].observe([1] * seen)
        streams[-1].append_sampled([2] * said, [-1.0] * said, one.index)
        streams += [Stream()] if window else []
    return wrap_turns(turns, seat=role, role=role, streams=tuple(streams))


def batch(found: list[Trajectory], **measures: list[list[float]]) -> TurnBatch:
    said = {name: [np.array(v, np.float32) for v in values] for name, values in measures.items()}
    return TurnBatch(found, measures=said)


def rewards_of(shapes: list[Shape]) -> np.ndarray:
    return np.array([r for shape in shapes for _, _, r in shape], float)


def advantages(name: str, shapes: list[Shape], values: list[list[float]], **settings: Any) -> list[float]:
    """Of turns for gae_turn, of tokens for the others; `values` by trajectory."""
    measure = "values" if name == "gae_turn" else "token_values"
    window = settings.pop("window", False)
    given = batch([played(shape, window=window) for shape in shapes], **{measure: values})
    found = choose("estimator", name, **settings)(given, rewards_of(shapes))
    return (found if name == "gae_turn" else found.values).tolist()


TWO: Shape = [(3, 2, 1.0), (1, 2, 4.0)]


def test_gae_turn_by_hand() -> None:
    # γ = λ = .5, V = 1 2 3: δ = .5·2-1, .5·3-2, 6-3 = 0, -.5, 3.  A_2 = 3, A_1 = -.5+.25·3 = .25, A_0 = 0+.25·.25
    shape: Shape = [(1, 1, 0.0), (1, 1, 0.0), (1, 1, 6.0)]
    assert advantages("gae_turn", [shape], [[1, 2, 3]], gamma=0.5, lam=0.5) == [0.0625, 0.25, 3]
    # λ = 0: the δ alone
    assert advantages("gae_turn", [shape], [[1, 2, 3]], gamma=0.5, lam=0.0) == [0, -0.5, 3]


def test_gae_token_by_hand() -> None:
    # r = 0 1 | 0 4, V = 1 2 | 3 4, γ = λ = .5: δ = .5·2-1, 1+.5·3-2, .5·4-3, 4-4 = 0, .5, -1, 0
    # A_3 = 0, A_2 = -1, A_1 = .5 - .25·1 = .25, A_0 = .25·.25: across the turn's end like anywhere else
    assert advantages("gae_token", [TWO], [[1, 2, 3, 4]], gamma=0.5, lam=0.5) == [0.0625, 0.25, -1, 0]


def test_gae_bilevel_by_hand() -> None:
    # ends: r = 1, 4 and V = 2, 4; turn γ = λ = .5: δ = 1+.5·4-2, 4-4 = 1, 0, so the ends are worth 1+2 and 0+4
    # inside, γ = 1: second turn δ = 1·4-3, 4-4 = 1, 0: A = 1+.5·0, 0; first δ = 2-1, 3-2 = 1, 1: A = 1+.5·1, 1
    found = advantages("gae_bilevel", [TWO], [[1, 2, 3, 4]], lam=0.5, turn_gamma=0.5)
    assert found == [1.5, 1, 1, 0]
    # a turn without reward is a turn: ends r = 0, 4: δ = .5·4-2, 0, worth 2 and 4; first turn δ = 2-1, 2-2
    quiet: Shape = [(3, 2, 0.0), (1, 2, 4.0)]
    assert advantages("gae_bilevel", [quiet], [[1, 2, 3, 4]], lam=0.5, turn_gamma=0.5) == [1, 0, 1, 0]


def test_a_critic_that_foresees_everything_leaves_nothing() -> None:
    for name in ("gae_turn", "gae_token", "gae_bilevel"):
        values: list[list[float]] = [[5, 4]] if name == "gae_turn" else [[5, 5, 4, 4]]
        settings = {"turn_gamma": 1.0} if name == "gae_bilevel" else {}
        assert set(advantages(name, [TWO], values, lam=0.7, **settings)) == {0}


shapes = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(-3, 3).map(float)), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)
shares = st.sampled_from([0.0, 0.3, 0.9, 1.0])


def drawn(sizes: list[int], seed: int) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=n).astype(np.float32).tolist() for n in sizes]


def tokens_of(shape: Shape) -> int:
    return sum(said for _, said, _ in shape)


@given(shapes, st.integers(0, 99), shares, shares)
def test_gae_turn_is_the_naive_loop(found: list[Shape], seed: int, gamma: float, lam: float) -> None:
    values = drawn([len(shape) for shape in found], seed)
    expected = []
    for shape, own in zip(found, values, strict=True):
        advantage, following, backwards = 0.0, 0.0, []
        for (_, _, reward), value in zip(reversed(shape), reversed(own), strict=True):
            advantage = reward + gamma * following - value + gamma * lam * advantage
            following = value
            backwards.append(advantage)
        expected += backwards[::-1]
    assert advantages("gae_turn", found, values, gamma=gamma, lam=lam) == pytest.approx(expected)


def masked_rows(shape: Shape, values: list[float]) -> list[tuple[bool, float, float, bool]]:
    """The whole stream, padded at its end: sampled, reward, value, whether a turn ends; observed ones hold rubbish."""
    rows, own = [], iter(values)
    for seen, said, reward in shape:
        rows += [(False, 0.0, 77.0, False)] * seen
        rows += [(True, reward if k == said - 1 else 0.0, next(own), k == said - 1) for k in range(said)]
    return [*rows, *[(False, 0.0, -88.0, False)] * 3]


@given(shapes, st.integers(0, 99), shares, shares, st.booleans())
def test_gae_token_is_the_masked_loop(found: list[Shape], seed: int, gamma: float, lam: float, window: bool) -> None:
    """Over the whole stream, value and advantage carried unchanged through what was only observed."""
    values = drawn([tokens_of(shape) for shape in found], seed)
    expected = []
    for shape, own in zip(found, values, strict=True):
        following = advantage = 0.0
        backwards = []
        for sampled, reward, value, _ in reversed(masked_rows(shape, own)):
            if sampled:
                advantage = reward + gamma * following - value + gamma * lam * advantage
                following = value
                backwards.append(advantage)
        expected += backwards[::-1]
    assert advantages("gae_token", found, values, gamma=gamma, lam=lam, window=window) == pytest.approx(expected)


@given(shapes, st.integers(0, 99), shares, shares, shares)
def test_gae_bilevel_is_the_loop_over_ends_and_then_tokens(
    found: list[Shape], seed: int, gamma: float, lam: float, turn_gamma: float
) -> None:
    values = drawn([tokens_of(shape) for shape in found], seed)
    expected = []
    for shape, own in zip(found, values, strict=True):
        rows = [row for row in masked_rows(shape, own) if row[0]]
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
    found_ = advantages("gae_bilevel", found, values, gamma=gamma, lam=lam, turn_gamma=turn_gamma)
    assert found_ == pytest.approx(expected, abs=1e-9)


@given(shapes, st.integers(0, 99), st.integers(1, 50))
def test_the_length_of_observations_changes_nothing(found: list[Shape], seed: int, more: int) -> None:
    longer = [[(seen + more, said, reward) for seen, said, reward in shape] for shape in found]
    values = drawn([tokens_of(shape) for shape in found], seed)
    for name in ("gae_token", "gae_bilevel"):
        one, other = (advantages(name, given, values, gamma=0.9, lam=0.8) for given in (found, longer))
        assert one == other


@given(shapes, st.integers(0, 99))
def test_other_trajectories_and_their_order_change_nothing(found: list[Shape], seed: int) -> None:
    for name in ("gae_turn", "gae_token", "gae_bilevel"):
        size = len if name == "gae_turn" else tokens_of
        values = drawn([size(shape) for shape in found], seed)
        together = advantages(name, found, values, gamma=0.9, lam=0.8)
        backwards = advantages(name, found[::-1], values[::-1], gamma=0.9, lam=0.8)
        apart = [advantages(name, [shape], [own], gamma=0.9, lam=0.8) for shape, own in zip(found, values, strict=True)]
        assert together == pytest.approx([a for own in apart for a in own], abs=1e-12)
        assert backwards == pytest.approx([a for own in apart[::-1] for a in own], abs=1e-12)


@given(shapes, shares, shares)
def test_without_values_an_advantage_is_the_return(found: list[Shape], gamma: float, turn_gamma: float) -> None:
    """V = 0 and λ = 1: what the critic is taught is what the estimator then gives."""
    given, rewards = batch([played(shape) for shape in found]), rewards_of(found)
    turns, tokens = [[0.0] * len(s) for s in found], [[0.0] * tokens_of(s) for s in found]
    returns = compute_turn_returns(given, rewards, read_discounts(choose("estimator", "gae_turn", gamma=gamma)))
    assert returns.tolist() == given.returns(rewards, gamma).tolist()
    assert advantages("gae_turn", found, turns, gamma=gamma) == pytest.approx(returns.tolist())
    for name, more in (("gae_token", {}), ("gae_bilevel", {"turn_gamma": turn_gamma})):
        told = read_discounts(choose("estimator", name, gamma=gamma, **more))
        expected = compute_token_returns(given, rewards, told).tolist()
        assert advantages(name, found, tokens, gamma=gamma, **more) == pytest.approx(expected, abs=1e-12)


def test_token_returns_by_hand() -> None:
    # γ = .5 from token to token: 4, 2 | 1 + .5·2 = 2, 1
    given, rewards = batch([played(TWO)]), rewards_of([TWO])
    told = read_discounts(choose("estimator", "gae_token", gamma=0.5))
    assert compute_token_returns(given, rewards, told).tolist() == [1, 2, 2, 4]
    # a head that serves gae_turn: whole within a turn, .5 from turn to turn: 1 + .5·4 = 3
    told = read_discounts(choose("estimator", "gae_turn", gamma=0.5))
    assert compute_token_returns(given, rewards, told).tolist() == [3, 3, 4, 4]
    # bi-level: .5 within, .25 from turn to turn: 1 + .25·4 = 2
    told = read_discounts(choose("estimator", "gae_bilevel", gamma=0.5, turn_gamma=0.25))
    assert compute_token_returns(given, rewards, told).tolist() == [1, 2, 2, 4]


@given(shapes)
def test_with_the_groups_mean_for_a_value_gae_turn_is_mars(found: list[Shape]) -> None:
    roles = ["opener", "responder"]
    several = [played(shape, roles[i % 2]) for i, shape in enumerate(found)]
    plain = TurnBatch(several)
    rewards = rewards_of(found)
    means = plain.mean_by(plain.returns(rewards), plain.groups(["game", "role", "policy"]))
    measures: Measures = {"values": np.split(means, plain.starts[1:-1])}
    ours = choose("estimator", "gae_turn")(TurnBatch(several, measures=measures), rewards)
    assert ours.tolist() == pytest.approx(choose("estimator", "mars")(plain, rewards).tolist(), abs=1e-9)


def test_a_turn_without_tokens_earns_at_the_last_token_before_it() -> None:
    turns = tuple(make_turn(k, {}) for k in range(4))
    stream = Stream()
    stream.append_sampled([1, 2], [-1.0, -1.0], 1)
    stream.append_sampled([3], [-1.0], 3)
    one = wrap_turns(turns, streams=(stream,))
    given = batch([one, one], token_values=[[0, 0, 0], [0, 0, 0]])
    # turn 0 has none before it: its 8 is lost; turn 2's 2 comes at turn 1's last token
    found = choose("estimator", "gae_token", gamma=0.5)(given, np.array([8.0, 1.0, 2.0, 4.0] * 2)).values
    assert found.tolist() == [0.5 * (3 + 0.5 * 4), 3 + 0.5 * 4, 4] * 2


def test_whitening_is_the_transform() -> None:
    found = [make_trajectory([1.0, 4.0]), make_trajectory([0.0])]
    measures = {"token_values": [np.zeros(4, np.float32), np.zeros(2, np.float32)]}
    rule = CreditSpec.model_validate(dict(estimator={"gae_token": {}}, transforms=["whiten"]))
    tokens = np.concatenate(
        [c.tokens for c in assign(TurnBatch(found, measures=measures), rule) if c.tokens is not None]
    )
    plain = np.array([5, 5, 4, 4, 0, 0], float)
    assert tokens == pytest.approx((plain - plain.mean()) / (plain.std() + 1e-6))


def test_nobody_to_credit_is_no_error() -> None:
    for name in ("gae_turn", "gae_token", "gae_bilevel", "archer"):
        measures: dict[str, list[Any]] = {key: [] for key in ("values", "token_values", "action_values")}
        assert assign(TurnBatch([], measures=measures), CreditSpec.model_validate(dict(estimator=name))) == []
        empty = {measure: [np.zeros(0, np.float32)] for measure in measures}
        (credited,) = assign(
            TurnBatch([make_trajectory([])], measures=empty), CreditSpec.model_validate(dict(estimator=name))
        )
        assert credited.advantages.tolist() == []
