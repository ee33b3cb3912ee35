"""Match ids: formatting, parsing, and refusal of other texts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.contracts import MatchId


@st.composite
def draw_match_ids(draw: st.DrawFn) -> MatchId:
    """Draw ids of matches, retries, and their branches."""
    match = MatchId(draw(st.integers(0, 99_999)), draw(st.integers(0, 99_999)), draw(st.integers(0, 3)))
    for turn, attempt in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3)), max_size=4)):
        match = replace(match.branch(turn), attempt=attempt)
    return match


def test_id_format() -> None:
    match = MatchId(1, 3)
    retry = replace(match, attempt=2)
    branch = retry.branch(4)
    nested_branch = replace(branch.branch(6), attempt=1)
    assert [str(identity) for identity in (match, retry, branch, nested_branch)] == [
        "0001-0003", "0001-0003-r2", "0001-0003-r2-b4", "0001-0003-r2-b4-b6-r1",
    ]  # fmt: skip
    assert str(MatchId(10_000, 12_345)) == "10000-12345"
    assert nested_branch.lineage() == [retry, branch, nested_branch] and nested_branch.first_attempt == branch.branch(6)


@given(draw_match_ids())
def test_parse_inverts_str(match: MatchId) -> None:
    assert MatchId.parse(str(match)) == match and hash(MatchId.parse(str(match))) == hash(match)


@given(st.text("0123456789-rb\u0663 \n", max_size=24) | st.text(max_size=12))
def test_parses_only_canonical_texts(text: str) -> None:
    try:
        match = MatchId.parse(text)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert str(match) == text


@pytest.mark.parametrize(
    "text",
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
def test_refuses_other_texts_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="is no match id") as refusal:
        MatchId.parse(text)
    assert "\n" not in str(refusal.value)


def test_refuses_inconsistent_ids() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        MatchId(1, -1)
    with pytest.raises(ValueError, match="or neither"):
        MatchId(1, 1, turn=3)
    with pytest.raises(ValueError, match="or neither"):
        MatchId(1, 1, parent=MatchId(1, 1))
    with pytest.raises(ValueError, match="of its parent, 0001-0001"):
        MatchId(1, 2, parent=MatchId(1, 1), turn=3)
