"""Patterns that read what models write take no longer than the square of its length, whatever it repeats.

A pattern with two neighbouring repeats that match the same characters, such as `\\s*(.*?)\\s*`, takes the cube: a reply
of a few thousand blanks would hold all matches of a process for minutes.
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
"""Characters of a text, and CPU seconds for it: a square of the length takes about 10 ms, a cube half a second."""
PUMPS = (" ", "\n", "a", "1", "a ", "1 ")
MOST_STARTS = 12
NOT_READ = ("games.adapters", "games.conformance", "simulators.confine", "simulators.agreement")
"""Modules without patterns for texts of models; `agreement` removes repeated blanks before it matches."""


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    modules = [
        one.name for top in (games, simulators) for one in pkgutil.walk_packages(top.__path__, f"{top.__name__}.")
    ]
    for module in [*modules, "agents.tool_formats", "agents.chat_messages"]:
        if not module.startswith(NOT_READ):
            for name, value in vars(importlib.import_module(module)).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    yield f"{module}.{name}", value


def literals(parsed: Any) -> Iterator[str]:
    """Yield the texts that a parsed pattern names, such as the ``` of a fence."""
    text = ""
    for code, value in parsed:
        if code is codes.LITERAL:
            text += chr(value)
            continue
        if text:
            yield text
            text = ""
        if code is codes.SUBPATTERN:
            yield from literals(value[3])
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from literals(branch)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            yield from literals(value[2])
    if text:
        yield text


def slowest(pattern: re.Pattern[str]) -> tuple[float, str, str]:
    """Return the most CPU seconds that a pumped text takes, and how the text begins and what it repeats."""
    known = list(dict.fromkeys(literals(_parser.parse(pattern.pattern, pattern.flags))))[:MOST_STARTS]
    worst = (0.0, "", "")
    for start in ["", *known]:
        for pump in [*PUMPS, *known[:3]]:
            text, began = start + pump * (LENGTH // len(pump)) + "\x01", time.process_time()
            pattern.fullmatch(text)
            for _ in pattern.finditer(text):
                pass
            worst = max(worst, (time.process_time() - began, start, pump))
            if worst[0] > SECONDS:
                return worst
    return worst


def test_a_cube_is_noticed() -> None:
    assert slowest(re.compile(r"\A\s*```(?:sql)?\s*(.*?)\s*```\s*\Z", re.DOTALL))[0] > SECONDS


def test_no_pattern_takes_the_cube_of_a_text() -> None:
    once = {(pattern.pattern, pattern.flags): (name, pattern) for name, pattern in patterns()}
    assert len(once) > 100
    found = {name: slowest(pattern) for name, pattern in once.values()}
    assert {name: worst for name, worst in found.items() if worst[0] > SECONDS} == {}


@pytest.mark.parametrize("blanks", [" " * 50_000, "\n\t" * 25_000])
def test_acts_full_of_blanks_are_read_at_once(blanks: str) -> None:
    began = time.process_time()
    for act in (f"<sql>```{blanks}x</sql>", f"<solution>```sql{blanks}SELECT 1{blanks}```{blanks}</solution>"):
        read_sql(act, terse=False)
    with pytest.raises(IllegalAct):
        read_sql(f"<sql>```{blanks}", terse=False)
    for act in (f"QUESTION{blanks}who", f"QUESTION who{blanks}", f"{blanks}QUESTION{blanks}x PROGRA"):
        assert read_search_act(act, terse=False) is None
    asked = read_search_act(f"{blanks}QUESTION: who{blanks}PROGRAM:{blanks}x", terse=False)
    assert asked is not None and (asked.text, asked.program) == ("who", "x")
    assert time.process_time() - began < 3
