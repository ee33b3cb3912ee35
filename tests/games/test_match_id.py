"""A match's identity: what is printed is read back, and nothing else is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.contracts import MatchId


@st.composite
def identities(draw: st.DrawFn) -> MatchId:
    """Matches, their repetitions, and branches of either."""
    match = MatchId(draw(st.integers(0, 99_999)), draw(st.integers(0, 99_999)), draw(st.integers(0, 3)))
    for turn, attempt in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3)), max_size=4)):
        match = replace(match.branch(turn), attempt=attempt)
    return match


def test_ids_are_printed_as_ever() -> None:
    match = MatchId(1, 3)
    again = replace(match, attempt=2)
    branch = again.branch(4)
    within = replace(branch.branch(6), attempt=1)
    assert [str(each) for each in (match, again, branch, within)] == [
        "0001-0003", "0001-0003-r2", "0001-0003-r2-b4", "0001-0003-r2-b4-b6-r1",
    ]  # fmt: skip
    assert str(MatchId(10_000, 12_345)) == "10000-12345"
    assert within.lineage() == [again, branch, within] and within.first_attempt == branch.branch(6)


@given(identities())
def test_what_is_printed_is_read_back(match: MatchId) -> None:
    assert MatchId.parse(str(match)) == match and hash(MatchId.parse(str(match))) == hash(match)


@given(st.text("0123456789-rb\u0663 \n", max_size=24) | st.text(max_size=12))
def test_a_text_is_an_id_just_if_it_is_printed_so(text: str) -> None:
    try:
        match = MatchId.parse(text)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert str(match) == text


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "1-3",
        "0001-0003-b",
        "0001-0003-r0",
        "0001-0003-b04",
        "00001-0003",
        "0001-0003-x1",
        "0001-0003\n",
        "play-7",
        "0001-0003-r1-r2",
        "0001-0003" + "-b1" * 65,
    ],
)
def test_other_texts_are_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no match id") as refusal:
        MatchId.parse(wrong)
    assert "\n" not in str(refusal.value)


def test_an_identity_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        MatchId(1, -1)
    with pytest.raises(ValueError, match="or neither"):
        MatchId(1, 1, turn=3)
    with pytest.raises(ValueError, match="or neither"):
        MatchId(1, 1, parent=MatchId(1, 1))
    with pytest.raises(ValueError, match="not of 0001-0001"):
        MatchId(1, 2, parent=MatchId(1, 1), turn=3)
