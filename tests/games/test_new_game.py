"""A new game is one short file: ours, and the one that docs/new-game.md adds from outside."""

import functools
import re
from pathlib import Path

import pytest

import games
from agents.role import read_role
from games.conformance.kit import check

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "new-game.md").read_text("utf-8")
MOST_LINES = 150


def test_every_game_is_one_file_of_at_most_150_lines():
    """Its own file; what it takes from its family is printed beside, for families are written once."""
    counts = {}
    for file in {place.partition(":")[0] for place in games.CLASSES.values()}:
        text = source(file)
        families = sorted(set(re.findall(r"games\.families\.\w+", text)))
        counts[file] = len(text.splitlines()), [f"{name} ({len(source(name).splitlines())})" for name in families]
    for file, (lines, families) in sorted(counts.items(), key=lambda item: item[1]):
        print(f"{lines:4} {file}", *families)
    assert max(lines for lines, _ in counts.values()) <= MOST_LINES


def source(module: str) -> str:
    """The text of one of our modules."""
    return (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")


@pytest.fixture
def race(tmp_path):
    """The guide's files, written as a reader would write them."""
    for name, text in re.findall(r"`([\w/.]+)`\n\n```\w+\n(.*?)```\n", GUIDE, re.S):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


def test_the_guides_game_is_won_as_its_theory_says(race):
    @functools.cache
    def value(total, target):
        return max(1 if total + n == target else -value(total + n, target) for n in (1, 2, 3) if total + n <= target)

    for target in (4, 9, 21):
        game = games.make(f"{race}/race.py:Race", target=target)
        game.reset(seed=0)
        while not game.ended:
            total = game.public()["total"]
            best = max(
                game.legal("") or [],
                key=lambda act: -value(total + int(act[-1]), target) if total + int(act[-1]) < target else 1,
            )
            game.step(best)
        assert game.payoffs()["first"] == value(0, target) == (-1 if target % 4 == 0 else 1)
    game = games.make(f"{race}/race.py:Race")
    game.reset(seed=0)
    game.step("ADD 4")
    assert not game.ended and game.infos["first"]["valid"] is False


def test_the_guides_secrets_are_looked_at(race):
    found = {f.name: f for f in check(lambda: games.make(f"{race}/highest.py:Highest"), seeds=10, acts=200)}
    assert all(finding.ok for finding in found.values()), found
    assert "2 of 2 seats" in found["secrets"].detail


def test_the_guides_role_reads_its_own_examples(race):
    role = read_role(race / "roles" / "racer.yaml")
    assert role.parse(role.examples[0].say).action == "ADD 1"
