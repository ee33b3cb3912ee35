"""Selection rules: pass@k by hand, ties, and best-of-k from n matches as the mean over all subsets."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.evaluate.selection import Rule, Sample, estimate_best_of, list_curve_sizes, select_match


def make_sample(answer: str = "", success: float = 0.0, **values: float) -> Sample:
    return Sample(answer=answer, success=success, **{"score": success, "payoff": success} | values)  # type: ignore[arg-type]


def make_successes(right: int, n: int) -> list[Sample]:
    return [make_sample(success=float(i < right)) for i in range(n)]


def test_pass_at_k_by_hand() -> None:
    """Two of four matches are right, so one of the six pairs has neither."""
    samples = make_successes(2, 4)
    assert [estimate_best_of(samples, "oracle", k)["success"] for k in (1, 2, 3, 4)] == pytest.approx(
        [1 / 2, 5 / 6, 1, 1]
    )
    assert estimate_best_of(make_successes(0, 4), "oracle", 4)["success"] == 0
    for right in range(6):  # Chen et al. 2021
        for k in range(1, 6):
            estimate = estimate_best_of(make_successes(right, 5), "oracle", k)["success"]
            assert estimate == pytest.approx(1 - math.comb(5 - right, k) / math.comb(5, k))
    for k in (0, 5):
        with pytest.raises(ValueError, match="cannot be estimated"):
            estimate_best_of(samples, "oracle", k)


def test_majority_by_hand() -> None:
    votes = [make_sample(answer) for answer in ("a", "b", "b", "a", "c")]
    assert select_match(votes, "majority") == 0, "a and b have two votes each, and a was first"
    assert select_match([*votes, make_sample("b")], "majority") == 1, "the first match with the most frequent answer"
    assert select_match([make_sample(""), make_sample(""), make_sample("a")], "majority") == 2, "no answer is no vote"
    assert select_match([make_sample(""), make_sample("")], "majority") == 0


def test_ties_go_to_the_first_match() -> None:
    samples = [make_sample(p_yes=p, reward_model=-p) for p in (0.2, 0.9, 0.9, 0.2)]
    assert (select_match(samples, "p_yes"), select_match(samples, "reward_model")) == (1, 0)
    assert select_match([make_sample(), make_sample()], "p_yes") == 0, "a judge that could read nothing"
    best = [make_sample(success=1, payoff=0.1), make_sample(success=1, payoff=0.5), make_sample(payoff=0.9)]
    assert select_match(best, "oracle") == 1, "the better success; of equal ones the better payoff"


def test_judge_by_hand() -> None:
    """Values 3, 2, 1 with results 0, 1, 1: in two of the three pairs the wrong first match is selected."""
    samples = [make_sample(p_yes=value, success=right) for value, right in ((3, 0), (2, 1), (1, 1))]
    assert [estimate_best_of(samples, "p_yes", k)["success"] for k in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 0])


MATCHES = st.lists(
    st.builds(
        make_sample,
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
def test_best_of_k_is_the_mean_over_all_subsets(samples: list[Sample], rule: Rule) -> None:
    for k in range(1, len(samples) + 1):
        subsets = [[samples[i] for i in indices] for indices in combinations(range(len(samples)), k)]
        chosen = [subset[select_match(subset, rule)] for subset in subsets]
        for figure, value in estimate_best_of(samples, rule, k).items():
            assert value == pytest.approx(sum(getattr(one, figure) for one in chosen) / len(chosen), abs=1e-9)


@given(MATCHES)
def test_majority_of_all_and_of_one(samples: list[Sample]) -> None:
    mean = sum(one.success for one in samples) / len(samples)
    assert estimate_best_of(samples, "majority", 1)["success"] == pytest.approx(mean, abs=1e-9)
    if len(samples) > 1:
        assert (
            estimate_best_of(samples, "majority", len(samples))["success"]
            == samples[select_match(samples, "majority")].success
        )


def test_sampled_majority_is_near_the_mean_over_all_subsets() -> None:
    samples = [make_sample(answer, success=float(answer == "a")) for answer in "aabbbacbca"]
    for k in (2, 5):
        subsets = [[samples[i] for i in indices] for indices in combinations(range(len(samples)), k)]
        exact = sum(subset[select_match(subset, "majority")].success for subset in subsets) / len(subsets)
        value = estimate_best_of(samples, "majority", k, (1, 2))["success"]
        assert value == pytest.approx(exact, abs=0.1), "256 draws: three standard errors"
        assert value == estimate_best_of(samples, "majority", k, (1, 2))["success"]


def test_curve_sizes_are_powers_of_two_and_the_last() -> None:
    assert [list_curve_sizes(n) for n in (1, 2, 5, 16)] == [[1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8, 16]]
