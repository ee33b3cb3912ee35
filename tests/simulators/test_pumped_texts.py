"""Regular expressions that parse model output take at most quadratic time on repetitive text.

A pattern with two adjacent repeats that match the same characters, such as `\\s*(.*?)\\s*`, takes cubic time: a reply
of a few thousand blanks would block all matches of a process for minutes.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]  # as the compiler itself reads patterns
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import games
import simulators
from games.base import IllegalAct
from simulators.search.acts import read_act as read_search_act
from simulators.sql.acts import read_sql

LENGTH, SECONDS = 800, 0.2
"""Text length and limit in CPU seconds: quadratic patterns take about 10 ms, cubic ones half a second."""
PUMPS = (" ", "\n", "a", "1", "a ", "1 ")
MAX_STARTS = 12
SKIPPED_MODULES = ("games.adapters", "games.conformance", "simulators.confine", "simulators.agreement")
"""Modules without patterns for model output; `agreement` removes repeated blanks before matching."""


def list_patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    modules = [
        module_info.name
        for top in (games, simulators)
        for module_info in pkgutil.walk_packages(top.__path__, f"{top.__name__}.")
    ]
    for module in [*modules, "agents.tool_formats", "agents.chat_messages"]:
        if not module.startswith(SKIPPED_MODULES):
            for name, value in vars(importlib.import_module(module)).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    yield f"{module}.{name}", value


def list_literals(parsed: Any) -> Iterator[str]:
    """Yield the literal texts of a parsed pattern, such as the ``` of a fence."""
    text = ""
    for code, value in parsed:
        if code is codes.LITERAL:
            text += chr(value)
            continue
        if text:
            yield text
            text = ""
        if code is codes.SUBPATTERN:
            yield from list_literals(value[3])
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from list_literals(branch)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            yield from list_literals(value[2])
    if text:
        yield text


def find_slowest_text(pattern: re.Pattern[str]) -> tuple[float, str, str]:
    """Return the slowest text's CPU seconds, its start, and what it repeats."""
    starts = list(dict.fromkeys(list_literals(_parser.parse(pattern.pattern, pattern.flags))))[:MAX_STARTS]
    worst = (0.0, "", "")
    for start in ["", *starts]:
        for pump in [*PUMPS, *starts[:3]]:
            text, started_at = start + pump * (LENGTH // len(pump)) + "\x01", time.process_time()
            pattern.fullmatch(text)
            for _ in pattern.finditer(text):
                pass
            worst = max(worst, (time.process_time() - started_at, start, pump))
            if worst[0] > SECONDS:
                return worst
    return worst


def test_detects_cubic_patterns() -> None:
    assert find_slowest_text(re.compile(r"\A\s*```(?:sql)?\s*(.*?)\s*```\s*\Z", re.DOTALL))[0] > SECONDS


def test_no_pattern_is_cubic() -> None:
    unique_patterns = {(pattern.pattern, pattern.flags): (name, pattern) for name, pattern in list_patterns()}
    assert len(unique_patterns) > 100
    slowest_by_name = {name: find_slowest_text(pattern) for name, pattern in unique_patterns.values()}
    assert {name: worst for name, worst in slowest_by_name.items() if worst[0] > SECONDS} == {}


@pytest.mark.parametrize("blanks", [" " * 50_000, "\n\t" * 25_000])
def test_acts_with_many_blanks_are_parsed_fast(blanks: str) -> None:
    started_at = time.process_time()
    for act in (f"<sql>```{blanks}x</sql>", f"<solution>```sql{blanks}SELECT 1{blanks}```{blanks}</solution>"):
        read_sql(act, terse=False)
    with pytest.raises(IllegalAct):
        read_sql(f"<sql>```{blanks}", terse=False)
    for act in (f"QUESTION{blanks}who", f"QUESTION who{blanks}", f"{blanks}QUESTION{blanks}x PROGRA"):
        assert read_search_act(act, terse=False) is None
    question = read_search_act(f"{blanks}QUESTION: who{blanks}PROGRAM:{blanks}x", terse=False)
    assert question is not None and (question.text, question.program) == ("who", "x")
    assert time.process_time() - started_at < 3
