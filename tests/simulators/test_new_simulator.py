"""The example simulator of docs/new-simulator.md passes the conformance kit."""

import re
from pathlib import Path
from typing import Any

import pytest

import games
from simulators.base import Simulator
from simulators.conformance import check, play

GUIDE = (Path(__file__).parents[2] / "docs" / "new-simulator.md").read_text("utf-8")


@pytest.fixture
def example(tmp_path):
    """Name of the guide's example simulator, saved as a file."""
    ((file, text),) = re.findall(r"`([\w.]+)`\n\n```python\n(.*?)```\n", GUIDE, re.S)[:1]
    (tmp_path / file).write_text(text, "utf-8")
    return f"{tmp_path / file}:LostProperty"


def make_example(example: str, **options: Any) -> Simulator:
    game = games.make(example, **options)
    assert isinstance(game, Simulator)
    return game


def test_passes_the_conformance_kit(example):
    findings = {finding.name: finding for finding in check(lambda: make_example(example), seeds=60, acts=300)}
    assert [finding.name for finding in findings.values() if finding.ok is False] == []
    assert [finding.name for finding in findings.values() if finding.ok is None] == ["secrets"]


def test_tool_and_owner_answer_as_in_the_guide(example):
    game = make_example(example, persona="terse", split="test")
    game.reset(seed=1)
    lost = vars(game)["lost"]
    game.step("ASK colour")
    assert game.observe("clerk")["messages"][-1] == {"sender": "owner", "text": lost[1]}
    game.step(f'find(word="{lost[1]}")')
    assert " ".join(lost) in game.observe("clerk")["messages"][-1]["text"]
    game.step('find(word="submarine")')
    assert game.observe("clerk")["messages"][-1]["text"] == "Error: nothing on the shelves is submarine"
    assert play(game, 2, "oracle")["success"] is True
