"""Selection: what each rule removes, and that it changes nothing else."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.credit.assign import compute_turn_rewards, select
from arena.credit.batch import TurnBatch
from arena.credit.samples import make_samples
from arena.credit.selection import SELECTORS, Selection, count_dropped_deals
from arena.credit.settings import CreditSpec
from arena.records import Trajectory
from tests.factories.trajectories import assign_credit, make_groups, make_scored_trajectory

WITHIN_DEAL: dict[str, Any] = {"estimator": {"mars": {"by": ["game", "seed", "role"]}}}
"""Compares trajectories within a deal, as selection does by default."""


def apply_rules(
    trajectories: list[Trajectory], *rules: Any, measures: dict[str, Any] | None = None, **credit: Any
) -> Selection:
    batch = TurnBatch(trajectories, measures=measures or {})
    spec = CreditSpec(select=list(rules), **credit)
    return select(batch, compute_turn_rewards(batch, spec), spec)


def list_kept_deals(trajectories: list[Trajectory], *rules: Any, **credit: Any) -> list[int]:
    mask = apply_rules(trajectories, *rules, **credit).kept
    return sorted({t.seed for t, is_kept in zip(trajectories, mask.tolist(), strict=True) if is_kept})


# -- the four effects --------------------------------------------------------------------------------------


def test_excluded_from_loss_stays_in_statistics() -> None:
    """SimpleTIR: the void trajectory has no token in the loss, but its reward stays in the others' baseline."""
    trajectories = make_groups([0.0, 3.0, 6.0])
    trajectories[0] = make_scored_trajectory(0.0, match="0001-0000", action=" ", valid=False)
    results = assign_credit(trajectories, "void_turns", **WITHIN_DEAL)
    # mean (0 + 3 + 6) / 3 = 3
    assert [c.advantages.tolist() for c in results] == [[-3], [0], [3]]
    assert results[0].learned is not None and not results[0].learned.any() and results[1].learned is None
    assert [s.stream for s in make_samples(results, {"buyer": 1.0})] == [
        trajectories[1].streams[0],
        trajectories[2].streams[0],
    ]


def test_excluded_from_statistics_stays_in_loss() -> None:
    """A replayed success is learned but not part of the others' baseline."""
    trajectories = make_groups([0.0, 3.0, 9.0])
    object.__setattr__(trajectories[2], "source", "recalled")
    with_replayed, without_replayed = (
        assign_credit(trajectories, **WITHIN_DEAL),
        assign_credit(trajectories, "replayed", **WITHIN_DEAL),
    )
    # all three: mean 4.  Without the replayed one: mean 1.5, and 9 is worth 7.5
    assert [c.advantages.tolist() for c in with_replayed] == [[-4], [-1], [5]]
    assert [c.advantages.tolist() for c in without_replayed] == [[-1.5], [1.5], [7.5]]
    assert [c.counted for c in without_replayed] == [True, True, False] and all(
        c.learned is None for c in without_replayed
    )
    assert [s.source for s in make_samples(without_replayed, {"buyer": 1.0})] == ["played", "played", "replayed"]


def test_dropped_equals_never_played() -> None:
    trajectories = make_groups([1.0, 1.0], [0.0, 2.0], [5.0, 5.0])
    dropped = assign_credit(trajectories, "zero_variance")  # one baseline over all deals, so that an absence would show
    absent = assign_credit(trajectories[2:4])
    assert [c.trajectory.match for c in dropped] == ["0001-0002", "0001-0003"]
    assert [c.advantages.tolist() for c in dropped] == [c.advantages.tolist() for c in absent] == [[-1], [1]]


def test_overlong_can_be_excluded_from_loss_and_statistics() -> None:
    trajectories = make_groups([0.0, 3.0, 9.0], turns=2)
    trajectories[2] = make_scored_trajectory(9.0, match="0001-0002", turns=2, finish="length")
    for overlong, is_learned, counted in (
        ({}, [False, False], True),
        ({"unit": "turn"}, [False, True], True),
        ({"counted": False}, [False, False], False),
    ):
        selection = apply_rules(trajectories, {"overlong": overlong})
        assert selection.learned.tolist() == [True] * 4 + is_learned and selection.kept.all()
        assert selection.counted.tolist() == [True, True, counted]
    # returns of both turns 0, 3, 9: mean 4, and 1.5 without the cut one
    for counted, mean in ((True, 4.0), (False, 1.5)):
        values = [
            c.advantages.tolist()
            for c in assign_credit(trajectories, {"overlong": {"counted": counted}}, **WITHIN_DEAL)
        ]
        assert values == [[s - mean] * 2 for s in (0, 3, 9)]


# -- rules by hand -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("void", "expected"), [("empty", [False, True, True]), ("invalid", [False, False, True])])
def test_void_turns_by_setting(void: str, expected: list[bool]) -> None:
    trajectories = [
        make_scored_trajectory(1.0, match="0001-0000", turns=2, action="", valid=False),
        make_scored_trajectory(1.0, match="0001-0001", turns=2, action="fly", valid=False),
        make_scored_trajectory(1.0, match="0001-0002", turns=2),
    ]
    selection = apply_rules(trajectories, {"void_turns": {"void": void}})
    assert selection.learned.reshape(3, 2).all(1).tolist() == expected, "the whole trajectory, not only the void turn"
    assert selection.learned.reshape(3, 2).any(1).tolist() == expected
    assert selection.counted.all() and selection.kept.all()


def test_zero_variance_drops_groups_of_equal_rewards() -> None:
    trajectories = make_groups([0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.01])
    assert list_kept_deals(trajectories, "zero_variance") == [1, 3]
    assert list_kept_deals(trajectories, {"zero_variance": {"tolerance": 0.02}}) == [1]
    assert list_kept_deals(trajectories, {"zero_variance": {"by": ["game"]}}) == [0, 1, 2, 3]
    assert list_kept_deals(make_groups([1.0], [0.5]), "zero_variance") == [0, 1], "a group of one stays"


def test_zero_variance_uses_only_the_named_reward() -> None:
    trajectories = make_groups([1.0, 1.0], [0.0, 1.0])
    trajectories[0] = make_scored_trajectory(1.0, 0, "0001-0000", valid=False)
    stages = [{"valid_act": {"bonus": 0.5}}]
    assert list_kept_deals(trajectories, "zero_variance", stages=stages) == [0, 1]
    assert list_kept_deals(trajectories, {"zero_variance": {"of": "deal"}}, stages=stages) == [1]


def test_zero_variance_drops_one_role_and_keeps_the_other() -> None:
    pairs = [(0.0, 1.0), (0.0, 2.0)]
    trajectories = [
        make_scored_trajectory(score, match=f"0001-{i:04d}", role=role)
        for i, pair in enumerate(pairs)
        for role, score in zip(("buyer", "seller"), pair, strict=True)
    ]
    selection = apply_rules(trajectories, "zero_variance")
    assert selection.kept.tolist() == [False, True] * 2
    assert count_dropped_deals(TurnBatch(trajectories), selection) == 0.5


def test_bands_by_hand() -> None:
    # means 0, .25, .5, 1; deviations 0, .433, .5, 0
    trajectories = make_groups([0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1])
    assert list_kept_deals(trajectories, "accuracy_band") == [1, 2]
    assert list_kept_deals(trajectories, {"accuracy_band": {"low": 0.25, "high": 0.25}}) == [1], "the bounds are inside"
    assert list_kept_deals(trajectories, {"std_band": {"low": 1e-3}}) == [1, 2]
    assert list_kept_deals(trajectories, {"std_band": {"low": 0.45}}) == [2]
    assert list_kept_deals(trajectories, {"std_band": {"top": 0.25}}) == [2]
    assert list_kept_deals(trajectories, {"std_band": {"top": 0.5}}) == [1, 2]
    assert list_kept_deals(trajectories, {"std_band": {"top": 0.75}}) == [0, 1, 2, 3], "the third ties with the fourth"
    assert list_kept_deals(trajectories, {"std_band": {"top": 0.75, "low": 0.1}}) == [1, 2]


def test_groups_are_ranked_within_their_role() -> None:
    """Sellers earn tens, buyers ones: ranked over all groups, no buyer would be kept."""
    buyers = make_groups([0.0, 1.0], [0.0, 0.5])
    sellers = [make_scored_trajectory(t.turns[0].rewards["deal"] * 10, t.seed, t.match, role="seller") for t in buyers]
    within_role = apply_rules(buyers + sellers, {"std_band": {"top": 0.5}}).kept.tolist()
    pooled = apply_rules(buyers + sellers, {"std_band": {"top": 0.5, "among": []}}).kept.tolist()
    assert within_role == [True, True, False, False] * 2
    assert pooled == [False] * 4 + [True] * 4


def test_high_entropy_keeps_the_most_uncertain_turns() -> None:
    trajectories = make_groups([1.0, 2.0, 3.0, 4.0, 5.0])
    # means over two tokens: .1 .2 .3 .4 .5; the linear .3 quantile of five is .1 + .3 · 4 · .1 = .22
    entropy = [np.array([m - 0.05, m + 0.05], np.float32) for m in (0.1, 0.2, 0.3, 0.4, 0.5)]
    selection = apply_rules(trajectories, {"high_entropy": {"quantile": 0.3}}, measures={"entropy": entropy})
    assert selection.learned.tolist() == [False, False, True, True, True]
    assert selection.counted.all() and selection.kept.all()
    assert apply_rules(trajectories, {"high_entropy": {"quantile": 0.0}}, measures={"entropy": entropy}).learned.all()
    assert CreditSpec.model_validate(dict(select=["high_entropy"])).needs == {"entropy"}


def make_surprising(*means: float) -> list[Trajectory]:
    """Return one-turn trajectories whose two tokens have these means of -log p."""
    trajectories = make_groups([float(n) for n in range(len(means))])
    for trajectory, mean in zip(trajectories, means, strict=True):
        (stream,) = trajectory.streams
        logprobs = iter([0.5 - mean, -0.5 - mean])
        object.__setattr__(stream, "logprobs", [next(logprobs) if mask else 0.0 for mask in stream.mask])
    return trajectories


def test_surprise_drops_the_tails() -> None:
    """Of 1, 2, 2, 2, 3 the mean is 2 and the population deviation sqrt(2 / 5) = .632."""
    trajectories = make_surprising(1.0, 2.0, 2.0, 2.0, 3.0)
    expected = {
        "low": [False, True, True, True, True],
        "high": [True, True, True, True, False],
        "both": [False, True, True, True, False],
    }
    for drop, learned in expected.items():
        selection = apply_rules(trajectories, {"surprise": {"drop": drop}})
        assert selection.learned.tolist() == learned
        assert selection.counted.all() and selection.kept.all()
    assert apply_rules(trajectories, {"surprise": {"deviations": 1.6}}).learned.all()  # 1.6 · .632 = 1.01
    assert not apply_rules(trajectories, {"surprise": {"deviations": 1.5}}).learned[[0, 4]].any()  # .95
    assert apply_rules(make_surprising(1.0, 1.0, 1.0), "surprise").learned.all()


def test_surprise_is_measured_among_learned_turns() -> None:
    """Returns are 0 to 4. Of the best three, with surprises 1, 1, 4, mean 2 and deviation 1.414, only 4 is a tail."""
    trajectories = make_surprising(9.0, 9.0, 1.0, 1.0, 4.0)
    selection = apply_rules(trajectories, {"top_returns": {"at_least": 2.0, "share": 1.0}}, "surprise")
    assert selection.learned.tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(("unit", "count"), [("turn", 6), ("trajectory", 6), ("group", 2)])
def test_random_control_removes_its_fraction_of_the_rest(unit: str, count: int) -> None:
    trajectories = make_groups([0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2])
    selection = apply_rules(trajectories, {"random": {"fraction": 0.5, "unit": unit}})
    affected = selection.kept if unit == "group" else selection.learned
    assert (~affected).sum() == count * (3 if unit == "group" else 1)
    assert selection.kept.all() == (unit != "group") and selection.counted.sum() == selection.kept.sum()
    repeated = apply_rules(trajectories, {"random": {"fraction": 0.5, "unit": unit}})
    assert (repeated.learned == selection.learned).all(), "it draws from the batch's generator"
    twice = apply_rules(
        trajectories, {"random": {"fraction": 0.5, "unit": unit}}, {"random": {"fraction": 1.0, "unit": unit}}
    )
    assert not twice.learned.any()


def test_later_rules_see_what_earlier_ones_kept() -> None:
    trajectories = make_groups([1.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    trajectories[2] = make_scored_trajectory(0.0, 0, "0001-0002", finish="length")
    assert list_kept_deals(trajectories, "zero_variance", {"overlong": {"counted": False}}) == [0, 1]
    assert list_kept_deals(trajectories, {"overlong": {"counted": False}}, "zero_variance") == [1]


def test_empty_batch_is_no_error() -> None:
    for name in SELECTORS:
        rule = {name: {"fraction": 0.5}} if name == "random" else name
        assert not len(apply_rules([], rule, measures={"entropy": []}).kept)


def test_dropped_deals_count_by_share() -> None:
    trajectories = make_groups([0, 0, 0, 0], [0, 1, 2, 3], [4, 4])
    is_kept = np.array([False, True, True, True, True, True, True, True, False, False])
    selection = Selection.select_all(TurnBatch(trajectories))
    assert count_dropped_deals(TurnBatch(trajectories), selection) == 0
    assert count_dropped_deals(TurnBatch(trajectories), selection.drop(TurnBatch(trajectories), ~is_kept)) == 0.25 + 1.0


# -- properties --------------------------------------------------------------------------------------------

DETERMINISTIC = [name for name in SELECTORS if name != "random"]
lot_lists = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["stop", "length"]), st.booleans()),
    min_size=1,
    max_size=16,
)


def make_trajectories(lot: list[tuple[int, float, str, bool]]) -> list[Trajectory]:
    return [
        make_scored_trajectory(score, seed, f"0001-{i:04d}", finish=finish, action="x" if valid else "", valid=valid)
        for i, (seed, score, finish, valid) in enumerate(lot)
    ]


def make_entropies(trajectories: list[Trajectory]) -> dict[str, Any]:
    """Return entropies that depend only on the match's id."""
    return {"entropy": [np.full(2, int(t.match[5:]) % 5 / 10, np.float32) for t in trajectories]}


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", [*DETERMINISTIC, "random"])
@settings(max_examples=40)
@given(lot=lot_lists, first=st.sampled_from(DETERMINISTIC))
def test_selection_only_removes(name: str, lot: list[Any], first: str) -> None:
    trajectories = make_trajectories(lot)
    rule = {name: {"fraction": 0.4, "unit": "group"}} if name == "random" else name
    before = apply_rules(trajectories, first, measures=make_entropies(trajectories))
    after = apply_rules(trajectories, first, rule, measures=make_entropies(trajectories))
    for field in ("learned", "counted", "kept"):
        assert not (getattr(after, field) & ~getattr(before, field)).any()
    assert not (after.counted & ~after.kept).any() and not (after.learned & ~after.kept).any()


@pytest.mark.parametrize("name", DETERMINISTIC)
@settings(max_examples=40)
@given(lot=lot_lists, data=st.data())
def test_order_of_matches_does_not_matter(name: str, lot: list[Any], data: st.DataObject) -> None:
    trajectories = make_trajectories(lot)
    order = data.draw(st.permutations(range(len(trajectories))))
    shuffled = [trajectories[i] for i in order]
    original = apply_rules(trajectories, name, measures=make_entropies(trajectories))
    permuted = apply_rules(shuffled, name, measures=make_entropies(shuffled))
    for field in ("learned", "counted", "kept"):
        assert getattr(original, field)[order].tolist() == getattr(permuted, field).tolist()


@pytest.mark.parametrize("name", ["void_turns", "overlong", "zero_variance", "accuracy_band"])
@settings(max_examples=40)
@given(lot=lot_lists, additions=lot_lists)
def test_other_groups_are_unchanged(name: str, lot: list[Any], additions: list[Any]) -> None:
    """Adding other deals or another role changes nothing in these groups."""
    trajectories = make_trajectories(lot)
    others = [
        make_scored_trajectory(s, seed + 10, f"0001-{i + 100:04d}") for i, (seed, s, _, _) in enumerate(additions)
    ]
    others += [
        make_scored_trajectory(s, seed, f"0001-{i + 200:04d}", role="seller")
        for i, (seed, s, _, _) in enumerate(additions)
    ]
    alone, together = apply_rules(trajectories, name), apply_rules(trajectories + others, name)
    for field in ("learned", "counted", "kept"):
        assert getattr(together, field)[: len(trajectories)].tolist() == getattr(alone, field).tolist()
