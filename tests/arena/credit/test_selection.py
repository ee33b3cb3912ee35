"""Selection: what each rule takes away, from where, and that it touches nothing else."""

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

GROUPED: dict[str, Any] = {"estimator": {"mars": {"by": ["game", "seed", "role"]}}}
"""With this estimator groups are compared within a deal, as selection does by default."""


def left(found: list[Trajectory], *rules: Any, measures: dict[str, Any] | None = None, **credit: Any) -> Selection:
    batch = TurnBatch(found, measures=measures or {})
    spec = CreditSpec(select=list(rules), **credit)
    return select(batch, compute_turn_rewards(batch, spec), spec)


def kept_deals(found: list[Trajectory], *rules: Any, **credit: Any) -> list[int]:
    kept = left(found, *rules, **credit).kept
    return sorted({t.seed for t, own in zip(found, kept.tolist(), strict=True) if own})


# -- the four acts -----------------------------------------------------------------------------------------


def test_out_of_the_loss_keeps_the_statistics() -> None:
    """SimpleTIR: the void trajectory has no token in the loss, and the others' baseline still knows its reward."""
    found = make_groups([0.0, 3.0, 6.0])
    found[0] = make_scored_trajectory(0.0, match="0001-0000", action=" ", valid=False)
    one = assign_credit(found, "void_turns", **GROUPED)
    # mean (0 + 3 + 6) / 3 = 3
    assert [c.advantages.tolist() for c in one] == [[-3], [0], [3]]
    assert one[0].learned is not None and not one[0].learned.any() and one[1].learned is None
    assert [s.stream for s in make_samples(one, {"buyer": 1.0})] == [found[1].streams[0], found[2].streams[0]]


def test_out_of_the_statistics_keeps_the_loss() -> None:
    """A replayed success learns, and the others' baseline does not know of it."""
    found = make_groups([0.0, 3.0, 9.0])
    object.__setattr__(found[2], "source", "recalled")
    told, silent = assign_credit(found, **GROUPED), assign_credit(found, "replayed", **GROUPED)
    # all three: mean 4.  Without the replayed one: mean 1.5, and 9 is worth 7.5
    assert [c.advantages.tolist() for c in told] == [[-4], [-1], [5]]
    assert [c.advantages.tolist() for c in silent] == [[-1.5], [1.5], [7.5]]
    assert [c.counted for c in silent] == [True, True, False] and all(c.learned is None for c in silent)
    assert [s.source for s in make_samples(silent, {"buyer": 1.0})] == ["played", "played", "replayed"]


def test_dropped_is_as_if_never_played() -> None:
    found = make_groups([1.0, 1.0], [0.0, 2.0], [5.0, 5.0])
    dropped = assign_credit(found, "zero_variance")  # one baseline over all deals, so that an absence would show
    absent = assign_credit(found[2:4])
    assert [c.trajectory.match for c in dropped] == ["0001-0002", "0001-0003"]
    assert [c.advantages.tolist() for c in dropped] == [c.advantages.tolist() for c in absent] == [[-1], [1]]


def test_overlong_can_leave_both_loss_and_statistics() -> None:
    found = make_groups([0.0, 3.0, 9.0], turns=2)
    found[2] = make_scored_trajectory(9.0, match="0001-0002", turns=2, finish="length")
    for overlong, turns, counted in (
        ({}, [False, False], True),
        ({"unit": "turn"}, [False, True], True),
        ({"counted": False}, [False, False], False),
    ):
        selection = left(found, {"overlong": overlong})
        assert selection.learned.tolist() == [True] * 4 + turns and selection.kept.all()
        assert selection.counted.tolist() == [True, True, counted]
    # returns of both turns 0, 3, 9: mean 4, and 1.5 without the cut one
    for counted, mean in ((True, 4.0), (False, 1.5)):
        values = [c.advantages.tolist() for c in assign_credit(found, {"overlong": {"counted": counted}}, **GROUPED)]
        assert values == [[s - mean] * 2 for s in (0, 3, 9)]


# -- rules by hand -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("void", "expected"), [("empty", [False, True, True]), ("invalid", [False, False, True])])
def test_what_is_void(void: str, expected: list[bool]) -> None:
    found = [
        make_scored_trajectory(1.0, match="0001-0000", turns=2, action="", valid=False),
        make_scored_trajectory(1.0, match="0001-0001", turns=2, action="fly", valid=False),
        make_scored_trajectory(1.0, match="0001-0002", turns=2),
    ]
    selection = left(found, {"void_turns": {"void": void}})
    assert selection.learned.reshape(3, 2).all(1).tolist() == expected, "the whole trajectory, not the void turn alone"
    assert selection.learned.reshape(3, 2).any(1).tolist() == expected
    assert selection.counted.all() and selection.kept.all()


def test_zero_variance_drops_the_groups_that_teach_nothing() -> None:
    found = make_groups([0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.01])
    assert kept_deals(found, "zero_variance") == [1, 3]
    assert kept_deals(found, {"zero_variance": {"tolerance": 0.02}}) == [1]
    assert kept_deals(found, {"zero_variance": {"by": ["game"]}}) == [0, 1, 2, 3]
    assert kept_deals(make_groups([1.0], [0.5]), "zero_variance") == [0, 1], "a group of one stays"


def test_zero_variance_looks_at_the_named_reward_alone() -> None:
    found = make_groups([1.0, 1.0], [0.0, 1.0])
    found[0] = make_scored_trajectory(1.0, 0, "0001-0000", valid=False)
    stages = [{"valid_act": {"bonus": 0.5}}]
    assert kept_deals(found, "zero_variance", stages=stages) == [0, 1]
    assert kept_deals(found, {"zero_variance": {"of": "deal"}}, stages=stages) == [1]


def test_zero_variance_drops_one_role_and_keeps_the_other() -> None:
    pairs = [(0.0, 1.0), (0.0, 2.0)]
    found = [
        make_scored_trajectory(score, match=f"0001-{i:04d}", role=role)
        for i, pair in enumerate(pairs)
        for role, score in zip(("buyer", "seller"), pair, strict=True)
    ]
    selection = left(found, "zero_variance")
    assert selection.kept.tolist() == [False, True] * 2
    assert count_dropped_deals(TurnBatch(found), selection) == 0.5


def test_bands_by_hand() -> None:
    # means 0, .25, .5, 1; deviations 0, .433, .5, 0
    found = make_groups([0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1])
    assert kept_deals(found, "accuracy_band") == [1, 2]
    assert kept_deals(found, {"accuracy_band": {"low": 0.25, "high": 0.25}}) == [1], "the bounds are inside"
    assert kept_deals(found, {"std_band": {"low": 1e-3}}) == [1, 2]
    assert kept_deals(found, {"std_band": {"low": 0.45}}) == [2]
    assert kept_deals(found, {"std_band": {"top": 0.25}}) == [2]
    assert kept_deals(found, {"std_band": {"top": 0.5}}) == [1, 2]
    assert kept_deals(found, {"std_band": {"top": 0.75}}) == [0, 1, 2, 3], "the third ties with the fourth"
    assert kept_deals(found, {"std_band": {"top": 0.75, "low": 0.1}}) == [1, 2]


def test_groups_are_ranked_among_their_own_role() -> None:
    """Sellers earn tens, buyers ones: by share over all, no buyer would be left."""
    small = make_groups([0.0, 1.0], [0.0, 0.5])
    large = [make_scored_trajectory(t.turns[0].rewards["deal"] * 10, t.seed, t.match, role="seller") for t in small]
    own = left(small + large, {"std_band": {"top": 0.5}}).kept.tolist()
    pooled = left(small + large, {"std_band": {"top": 0.5, "among": []}}).kept.tolist()
    assert own == [True, True, False, False] * 2
    assert pooled == [False] * 4 + [True] * 4


def test_high_entropy_keeps_the_turns_that_decide() -> None:
    found = make_groups([1.0, 2.0, 3.0, 4.0, 5.0])
    # means over two tokens: .1 .2 .3 .4 .5; the linear .3 quantile of five is .1 + .3 · 4 · .1 = .22
    entropy = [np.array([m - 0.05, m + 0.05], np.float32) for m in (0.1, 0.2, 0.3, 0.4, 0.5)]
    selection = left(found, {"high_entropy": {"quantile": 0.3}}, measures={"entropy": entropy})
    assert selection.learned.tolist() == [False, False, True, True, True]
    assert selection.counted.all() and selection.kept.all()
    assert left(found, {"high_entropy": {"quantile": 0.0}}, measures={"entropy": entropy}).learned.all()
    assert CreditSpec.model_validate(dict(select=["high_entropy"])).needs == {"entropy"}


def surprised(*means: float) -> list[Trajectory]:
    """One trajectory of one turn each, whose two tokens have this mean of -log p."""
    found = make_groups([float(n) for n in range(len(means))])
    for trajectory, mean in zip(found, means, strict=True):
        (stream,) = trajectory.streams
        own = iter([0.5 - mean, -0.5 - mean])
        object.__setattr__(stream, "logprobs", [next(own) if mask else 0.0 for mask in stream.mask])
    return found


def test_surprise_drops_the_tails() -> None:
    """Of 1, 2, 2, 2, 3 the mean is 2 and the population deviation sqrt(2 / 5) = .632."""
    found = surprised(1.0, 2.0, 2.0, 2.0, 3.0)
    expected = {
        "low": [False, True, True, True, True],
        "high": [True, True, True, True, False],
        "both": [False, True, True, True, False],
    }
    for drop, learned in expected.items():
        selection = left(found, {"surprise": {"drop": drop}})
        assert selection.learned.tolist() == learned
        assert selection.counted.all() and selection.kept.all()
    assert left(found, {"surprise": {"deviations": 1.6}}).learned.all()  # 1.6 · .632 = 1.01
    assert not left(found, {"surprise": {"deviations": 1.5}}).learned[[0, 4]].any()  # .95
    assert left(surprised(1.0, 1.0, 1.0), "surprise").learned.all()


def test_surprise_is_judged_among_what_is_learned() -> None:
    """Returns are 0 to 4. Of the best three, with surprises 1, 1, 4, mean 2 and deviation 1.414, only 4 is a tail."""
    found = surprised(9.0, 9.0, 1.0, 1.0, 4.0)
    selection = left(found, {"top_returns": {"at_least": 2.0, "share": 1.0}}, "surprise")
    assert selection.learned.tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(("unit", "count"), [("turn", 6), ("trajectory", 6), ("group", 2)])
def test_the_control_takes_its_fraction_of_what_is_left(unit: str, count: int) -> None:
    found = make_groups([0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2])
    selection = left(found, {"random": {"fraction": 0.5, "unit": unit}})
    gone = selection.kept if unit == "group" else selection.learned
    assert (~gone).sum() == count * (3 if unit == "group" else 1)
    assert selection.kept.all() == (unit != "group") and selection.counted.sum() == selection.kept.sum()
    again = left(found, {"random": {"fraction": 0.5, "unit": unit}})
    assert (again.learned == selection.learned).all(), "its chance is the batch's"
    twice = left(found, {"random": {"fraction": 0.5, "unit": unit}}, {"random": {"fraction": 1.0, "unit": unit}})
    assert not twice.learned.any()


def test_later_rules_judge_by_what_earlier_ones_left() -> None:
    found = make_groups([1.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    found[2] = make_scored_trajectory(0.0, 0, "0001-0002", finish="length")
    assert kept_deals(found, "zero_variance", {"overlong": {"counted": False}}) == [0, 1]
    assert kept_deals(found, {"overlong": {"counted": False}}, "zero_variance") == [1]


def test_nothing_to_select_from_is_no_error() -> None:
    for name in SELECTORS:
        rule = {name: {"fraction": 0.5}} if name == "random" else name
        assert not len(left([], rule, measures={"entropy": []}).kept)


def test_a_deal_is_lost_by_its_share() -> None:
    found = make_groups([0, 0, 0, 0], [0, 1, 2, 3], [4, 4])
    kept = np.array([False, True, True, True, True, True, True, True, False, False])
    whole = Selection.select_all(TurnBatch(found))
    assert count_dropped_deals(TurnBatch(found), whole) == 0
    assert count_dropped_deals(TurnBatch(found), whole.drop(TurnBatch(found), ~kept)) == 0.25 + 1.0


# -- properties --------------------------------------------------------------------------------------------

DRAWN = [name for name in SELECTORS if name != "random"]
lots = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["stop", "length"]), st.booleans()),
    min_size=1,
    max_size=16,
)


def drawn(lot: list[tuple[int, float, str, bool]]) -> list[Trajectory]:
    return [
        make_scored_trajectory(score, seed, f"0001-{i:04d}", finish=finish, action="x" if valid else "", valid=valid)
        for i, (seed, score, finish, valid) in enumerate(lot)
    ]


def entropies(found: list[Trajectory]) -> dict[str, Any]:
    """One that follows the match, whatever the order."""
    return {"entropy": [np.full(2, int(t.match[5:]) % 5 / 10, np.float32) for t in found]}


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", [*DRAWN, "random"])
@settings(max_examples=40)
@given(lot=lots, first=st.sampled_from(DRAWN))
def test_selection_only_takes_away(name: str, lot: list[Any], first: str) -> None:
    found = drawn(lot)
    rule = {name: {"fraction": 0.4, "unit": "group"}} if name == "random" else name
    before = left(found, first, measures=entropies(found))
    after = left(found, first, rule, measures=entropies(found))
    for what in ("learned", "counted", "kept"):
        assert not (getattr(after, what) & ~getattr(before, what)).any()
    assert not (after.counted & ~after.kept).any() and not (after.learned & ~after.kept).any()


@pytest.mark.parametrize("name", DRAWN)
@settings(max_examples=40)
@given(lot=lots, data=st.data())
def test_the_order_of_matches_does_not_matter(name: str, lot: list[Any], data: st.DataObject) -> None:
    found = drawn(lot)
    order = data.draw(st.permutations(range(len(found))))
    mixed = [found[i] for i in order]
    one = left(found, name, measures=entropies(found))
    other = left(mixed, name, measures=entropies(mixed))
    for what in ("learned", "counted", "kept"):
        assert getattr(one, what)[order].tolist() == getattr(other, what).tolist()


@pytest.mark.parametrize("name", ["void_turns", "overlong", "zero_variance", "accuracy_band"])
@settings(max_examples=40)
@given(lot=lots, more=lots)
def test_other_groups_stay_as_they_are(name: str, lot: list[Any], more: list[Any]) -> None:
    """What is added in other deals, or for another role, changes nothing here."""
    found = drawn(lot)
    others = [make_scored_trajectory(s, seed + 10, f"0001-{i + 100:04d}") for i, (seed, s, _, _) in enumerate(more)]
    others += [
        make_scored_trajectory(s, seed, f"0001-{i + 200:04d}", role="seller") for i, (seed, s, _, _) in enumerate(more)
    ]
    alone, among = left(found, name), left(found + others, name)
    for what in ("learned", "counted", "kept"):
        assert getattr(among, what)[: len(found)].tolist() == getattr(alone, what).tolist()
