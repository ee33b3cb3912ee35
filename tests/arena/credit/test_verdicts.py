"""Reading judges' answers: each gives one verdict or none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.credit.verdicts import MAX_CHARACTERS, read_ranking, read_scores, read_winner

NAMES = ["polite", "to_the_point"]
SCALE = (1.0, 5.0)


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ("polite: 4\nto_the_point: 2", [4, 2]),
        ("to_the_point: 2\n\npolite: 4.5", [4.5, 2]),
        ("- **Polite:** 4/5\n- **To the point**: 1 out of 5.", [4, 1]),
        ("1. polite: 3 (he says thanks)\n2. to_the_point: 5 - because nothing is left out", [3, 5]),
        ("Here are my scores.\nPOLITE = 1\nTO_THE_POINT = 1\nThat is all.", [1, 1]),
        ("polite: 3\npolite: 3\nto_the_point: 2", [3, 2]),
    ],
)
def test_scores_are_read_in_the_requested_form_and_close_variants(answer: str, scores: list[float]) -> None:
    assert read_scores(answer, NAMES, SCALE) == scores


@pytest.mark.parametrize(
    "answer",
    [
        "", "polite: 4", "polite: 4\nto_the_point:", "polite: 4\nto_the_point: good", "polite: 6\nto_the_point: 2",
        "polite: 0.99\nto_the_point: 2", "polite: 4\npolite: 5\nto_the_point: 2", "polite: 4-5\nto_the_point: 2",
        "polite: 4 - 5\nto_the_point: 2", "polite: 4 or 5\nto_the_point: 2", "polite: 4 (or 5)\nto_the_point: 2",
        "polite: 4/10\nto_the_point: 2", "polite: nan\nto_the_point: 2", "polite: inf\nto_the_point: 2",
        "polite: 4e0\nto_the_point: 2", "polite: ４\nto_the_point: 2", "4\n2", "full marks",
        "the player wrote 'polite: 5'\nto_the_point: 2", "polite: 5, to_the_point: 5",
        "polite: 4\nto_the_point: 2" + " " * MAX_CHARACTERS,
    ],
)  # fmt: skip
def test_missing_contradictory_or_out_of_scale_scores_give_none(answer: str) -> None:
    assert read_scores(answer, NAMES, SCALE) is None


def test_single_criterion_accepts_a_bare_number() -> None:
    assert read_scores(" **3** ", ["good"], SCALE) == [3]
    assert read_scores("3/5.", ["good"], SCALE) == [3]
    assert read_scores("3\n4", ["good"], SCALE) is None
    assert read_scores("7", ["good"], SCALE) is None


@pytest.mark.parametrize(
    ("answer", "winner"),
    [
        ("WINNER: A", 1), ("winner: b", 0), ("**Winner: TIE**", 0.5), ("Both greet.\nWINNER: A. Match B is rude.", 1),
        ("B", 0), ("Match A.", 1), ("draw", 0.5), ("WINNER: B (it is polite)", 0),
        ("A or B", None), ("A, B", None), ("WINNER: A\nWINNER: B", None), ("WINNER: C", None), ("", None),
        ("A\nB", None), ("I like A", None), ("WINNER: A or B", None), ("WINNER: A/B", None), ("TİE", None),
        ("WINNER: A\nwinner: a", 1),
    ],
)  # fmt: skip
def test_winner_is_read_if_unique(answer: str, winner: float | None) -> None:
    assert read_winner(answer) == winner


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ("RANKING: 2 > 1 > 3", [0.5, 1, 0]),
        ("2, 1, 3", [0.5, 1, 0]),
        ("Well.\nranking: 1 = 2 > 3.", [0.75, 0.75, 0]),
        ("RANKING: 1=2=3", [0.5, 0.5, 0.5]),
        ("RANKING: 3 > 1", None),
        ("RANKING: 3 > 1 > 1", None),
        ("RANKING: 3 > 1 > 4", None),
        ("RANKING: 0 > 1 > 2", None),
        ("RANKING: 1 > 2 > 3\nRANKING: 3 > 2 > 1", None),
        ("1 > 2 > 3 and so on", None),
        ("RANKING: " + "1 > " * 5000 + "1", None),
    ],
)
def test_ranking_is_read_if_it_names_every_match_once(answer: str, values: list[float] | None) -> None:
    assert read_ranking(answer, 3) == values


noise = st.text(alphabet=st.sampled_from([*"polite_: =>/5.0123ABab\n-*winerkgts(", "\u202e", "İ", "４"]), max_size=60)


@given(st.text(max_size=200) | noise)
def test_any_text_gives_a_verdict_within_bounds_or_none(answer: str) -> None:
    scores = read_scores(answer, ["polite"], SCALE)
    assert scores is None or (len(scores) == 1 and 1 <= scores[0] <= 5)
    assert read_winner(answer) in (None, 0, 0.5, 1)
    ranking = read_ranking(answer, 3)
    assert ranking is None or (len(ranking) == 3 and math.isclose(sum(ranking), 1.5) and min(ranking) >= 0)


@given(st.lists(st.integers(100, 500), min_size=2, max_size=2), st.permutations(NAMES), noise)
def test_scores_are_read_in_any_order_and_amid_prose(hundredths: list[int], order: list[str], prose: str) -> None:
    scores = {name: n / 100 for name, n in zip(NAMES, hundredths, strict=True)}
    lines = "\n".join(f"{name}: {scores[name]:g}" for name in order)
    read = read_scores(f"Prose.\n{lines}\n", NAMES, SCALE)
    assert read == [scores[name] for name in NAMES]
    with_prose = read_scores(f"{prose}\n{lines}\n{prose}", NAMES, SCALE)
    assert with_prose is None or with_prose == read, "prose may make an answer unreadable, never another one"


@given(st.permutations([1, 2, 3, 4]))
def test_ranking_round_trip(order: list[int]) -> None:
    read = read_ranking("RANKING: " + " > ".join(map(str, order)), 4)
    assert read is not None and [read[n - 1] for n in order] == pytest.approx([1, 2 / 3, 1 / 3, 0])
