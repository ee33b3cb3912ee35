"""Users' regular expressions over model texts: equal to Python's `re`, with an error for endless searches."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import patterns
from agents.errors import PatternError
from agents.patterns import Pattern

EXPRESSIONS = [
    "a", "a+b?", "(a|b)c", "^b", "c$", "(a)(b)?", "", r"\bab\b", r"^Error: |^\w*Error\b", "<x>(.*?)</x>", "(?i)A",
]  # fmt: skip


@given(st.sampled_from(EXPRESSIONS), st.text("abc <>x/\nE:rror", max_size=40), st.booleans())
def test_matches_equal_those_of_re(expression: str, text: str, lines: bool) -> None:
    reference, ours = re.compile(expression, re.MULTILINE if lines else 0), Pattern(expression, lines)
    expected = [match[1 if reference.groups else 0] or "" for match in reference.finditer(text)]
    assert ours.first(text) == (expected[0] if expected else None)
    assert ours.last(text) == (expected[-1] if expected else None)
    assert (text in ours) == bool(expected)


def test_refuses_malformed_expression_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^'\(a' is no regular expression: missing \)"):
        Pattern("(a")


@pytest.mark.parametrize("search", ["first", "last", "__contains__"])
def test_endless_search_is_refused_in_one_line(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Python's `re` this takes years."""
    monkeypatch.setattr(patterns, "SEARCH_SECONDS", 0.05)
    with pytest.raises(PatternError, match=r"'\(a\|aa\)\+\$' takes over 0.05 s on a text of 5,001 characters: write"):
        getattr(Pattern("(a|aa)+$"), search)("a" * 5000 + "b")
