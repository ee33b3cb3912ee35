"""The example of docs/new-adapter.md, and an adapter written by following that page, pass the conformance kit."""

from pathlib import Path

import pytest

import games
from games.conformance.kit import check
from tests.pages import ROOT, find_blocks

pytest.importorskip("crafter")


@pytest.fixture
def example(tmp_path: Path) -> str:
    """Name of the page's example game, saved as a file."""
    (block,) = [
        block for block in find_blocks(ROOT / "docs" / "new-adapter.md") if block.file and block.language == "python"
    ]
    (tmp_path / str(block.file)).write_text(block.text, "utf-8")
    return f"{tmp_path / str(block.file)}:Crafter"


@pytest.mark.slow
def test_example_passes_the_conformance_kit(example: str) -> None:
    findings = check(lambda: games.make(example, max_turns=25), seeds=2, acts=50)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


def test_example_is_played_in_words_and_pays_achievements(example: str) -> None:
    game = games.make(example, max_turns=12)
    game.reset(seed=1)
    rows = game.messages("agent")[0].text.split("\n")
    assert len(rows) == 7 and {len(row.split()) for row in rows} == {9} and rows[3].split()[4] == "player"
    for _ in range(12):
        game.step("Place_Plant" if game.private("agent")["carries"].get("sapling") else "do")
    assert game.ended == "turns" and game.public()["steps_left"] == 0
    assert game.payoffs()["agent"] == pytest.approx(len(game.public()["achieved"]) / 22)
    game.reset(seed=1)
    game.step("fly")
    assert not game.infos["agent"]["valid"]


@pytest.mark.slow
def test_another_environment_needs_one_file() -> None:
    pytest.importorskip("pygame")
    name = f"{Path(__file__).with_name('pong_text.py')}:Pong"
    findings = check(lambda: games.make(name, max_turns=12), seeds=1, acts=30)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings
    game = games.make(name, max_turns=40)
    game.reset(seed=1)
    while not game.ended:
        game.step("stay")
    assert game.ended == "over" and game.payoffs()["left"] == game.payoffs()["right"] < 0, (
        "a lost ball costs both players"
    )
