"""Rules of selection: pass@k by hand, ties, and that best-of-k from n matches is what all subsets give."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.evaluate.selection import Rule, Sample, estimate_best_of, list_curve_sizes, select_match


def sampled(answer: str = "", success: float = 0.0, **values: float) -> Sample:
    return Sample(answer=answer, success=success, **{"score": success, "payoff": success} | values)  # type: ignore[arg-type]


def successes(right: int, n: int) -> list[Sample]:
    return [sampled(success=float(i < right)) for i in range(n)]


def test_pass_at_k_by_hand() -> None:
    """Of four matches two are right: of the six pairs one has neither."""
    two = successes(2, 4)
    assert [estimate_best_of(two, "oracle", k)["success"] for k in (1, 2, 3, 4)] == pytest.approx([1 / 2, 5 / 6, 1, 1])
    assert estimate_best_of(successes(0, 4), "oracle", 4)["success"] == 0
    for right in range(6):  # Chen et al. 2021
        for k in range(1, 6):
            found = estimate_best_of(successes(right, 5), "oracle", k)["success"]
            assert found == pytest.approx(1 - math.comb(5 - right, k) / math.comb(5, k))
    for k in (0, 5):
        with pytest.raises(ValueError, match="cannot be estimated"):
            estimate_best_of(two, "oracle", k)


def test_the_majority_by_hand() -> None:
    votes = [sampled(answer) for answer in ("a", "b", "b", "a", "c")]
    assert select_match(votes, "majority") == 0, "a and b have two votes each, and a was first"
    assert select_match([*votes, sampled("b")], "majority") == 1, "the first match with the most frequent answer"
    assert select_match([sampled(""), sampled(""), sampled("a")], "majority") == 2, "no answer is no vote"
    assert select_match([sampled(""), sampled("")], "majority") == 0


def test_equal_values_go_to_the_match_sampled_first() -> None:
    found = [sampled(p_yes=p, reward_model=-p) for p in (0.2, 0.9, 0.9, 0.2)]
    assert (select_match(found, "p_yes"), select_match(found, "reward_model")) == (1, 0)
    assert select_match([sampled(), sampled()], "p_yes") == 0, "a judge that could read nothing"
    best = [sampled(success=1, payoff=0.1), sampled(success=1, payoff=0.5), sampled(payoff=0.9)]
    assert select_match(best, "oracle") == 1, "the better success; of equal ones the better payoff"


def test_a_judge_by_hand() -> None:
    """Values 3, 2, 1 with results 0, 1, 1: of the three pairs, two are decided by the wrong first one."""
    found = [sampled(p_yes=value, success=right) for value, right in ((3, 0), (2, 1), (1, 1))]
    assert [estimate_best_of(found, "p_yes", k)["success"] for k in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 0])


MATCHES = st.lists(
    st.builds(
        sampled,
        answer=st.sampled_from(["", "a", "b", "c"]),
        success=st.sampled_from([0.0, 1.0]),
        payoff=st.integers(-3, 3).map(float),
        p_yes=st.sampled_from([0.0, 0.5, 1.0, -math.inf]),
        reward_model=st.sampled_from([-1.0, 0.0, 2.0]),
    ),
    min_size=1,
    max_size=6,
)


@given(MATCHES, st.sampled_from(["p_yes", "reward_model", "oracle"]))
def test_the_best_of_k_is_the_mean_over_all_subsets(found: list[Sample], rule: Rule) -> None:
    for k in range(1, len(found) + 1):
        subsets = [[found[i] for i in own] for own in combinations(range(len(found)), k)]
        chosen = [subset[select_match(subset, rule)] for subset in subsets]
        for figure, value in estimate_best_of(found, rule, k).items():
            assert value == pytest.approx(sum(getattr(one, figure) for one in chosen) / len(chosen), abs=1e-9)


@given(MATCHES)
def test_the_majority_of_all_and_of_one(found: list[Sample]) -> None:
    mean = sum(one.success for one in found) / len(found)
    assert estimate_best_of(found, "majority", 1)["success"] == pytest.approx(mean, abs=1e-9)
    if len(found) > 1:
        assert (
            estimate_best_of(found, "majority", len(found))["success"] == found[select_match(found, "majority")].success
        )


def test_the_majority_of_some_is_near_the_mean_over_all_subsets() -> None:
    found = [sampled(answer, success=float(answer == "a")) for answer in "aabbbacbca"]
    for k in (2, 5):
        subsets = [[found[i] for i in own] for own in combinations(range(len(found)), k)]
        exact = sum(subset[select_match(subset, "majority")].success for subset in subsets) / len(subsets)
        value = estimate_best_of(found, "majority", k, (1, 2))["success"]
        assert value == pytest.approx(exact, abs=0.1), "256 draws: three standard errors"
        assert value == estimate_best_of(found, "majority", k, (1, 2))["success"]


def test_sizes_are_powers_of_two_and_the_last() -> None:
    assert [list_curve_sizes(n) for n in (1, 2, 5, 16)] == [[1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8, 16]]
