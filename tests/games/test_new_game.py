"""Every game is one short file, including the example of docs/new-game.md."""

import functools
import re
from pathlib import Path

import pytest

import games
from agents.role import read_role
from games.conformance.kit import check

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "new-game.md").read_text("utf-8")
MAX_LINES = 150


def test_every_game_is_one_file_of_at_most_150_lines():
    """Count only the game's own file; print the shared family files beside it."""
    counts = {}
    for file in {location.partition(":")[0] for location in games.CLASSES.values()}:
        text = read_source(file)
        families = sorted(set(re.findall(r"games\.families\.\w+", text)))
        counts[file] = len(text.splitlines()), [f"{name} ({len(read_source(name).splitlines())})" for name in families]
    for file, (lines, families) in sorted(counts.items(), key=lambda item: item[1]):
        print(f"{lines:4} {file}", *families)
    assert max(lines for lines, _ in counts.values()) <= MAX_LINES


def read_source(module: str) -> str:
    """Return the source of one of our modules."""
    return (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")


@pytest.fixture
def guide_folder(tmp_path):
    """Folder with the guide's example files."""
    for name, text in re.findall(r"`([\w/.]+)`\n\n```\w+\n(.*?)```\n", GUIDE, re.S):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


def test_guides_game_matches_its_theory(guide_folder):
    @functools.cache
    def compute_value(total, target):
        return max(
            1 if total + n == target else -compute_value(total + n, target) for n in (1, 2, 3) if total + n <= target
        )

    for target in (4, 9, 21):
        game = games.make(f"{guide_folder}/race.py:Race", target=target)
        game.reset(seed=0)
        while not game.ended:
            total = game.public()["total"]
            best = max(
                game.legal("") or [],
                key=lambda act: -compute_value(total + int(act[-1]), target) if total + int(act[-1]) < target else 1,
            )
            game.step(best)
        assert game.payoffs()["first"] == compute_value(0, target) == (-1 if target % 4 == 0 else 1)
    game = games.make(f"{guide_folder}/race.py:Race")
    game.reset(seed=0)
    game.step("ADD 4")
    assert not game.ended and game.infos["first"]["valid"] is False


def test_guides_secrets_are_checked(guide_folder):
    findings = {f.name: f for f in check(lambda: games.make(f"{guide_folder}/highest.py:Highest"), seeds=10, acts=200)}
    assert all(finding.ok for finding in findings.values()), findings
    assert "2 of 2 seats" in findings["secrets"].detail


def test_guides_role_parses_its_own_examples(guide_folder):
    role = read_role(guide_folder / "roles" / "racer.yaml")
    assert role.parse(role.examples[0].say).action == "ADD 1"
