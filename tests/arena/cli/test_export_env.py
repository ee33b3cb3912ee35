"""`arena export-env` writes a project that names game and options, and refuses impossible ones in one line."""

import ast
import json
import tomllib
from pathlib import Path

import pytest

from arena.export.environments.targets import TARGETS
from tests.factories.commands import arena, get_refusal

CASES = {
    ("kuhn_pokr", "--as", "trl"): "unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?",
    ("kuhn_poker", "--as", "gymnasim"): "did you mean 'gymnasium'?",
    ("kuhn_poker", "--as", "trl", "--seat", "frist"): "has no seat 'frist' — did you mean 'first'?",
    ("kuhn_poker", "--as", "trl", "--against", "cfx"): "did you mean 'cfr'?",
    ("kuhn_poker", "--as", "trl", "--option", "ilegal=end"): "did you mean 'illegal'?",
    ("kuhn_poker", "--as", "trl", "--option", "illegal"): "write A=B",
    ("kuhn_poker", "--as", "textarena", "--seat", "first"): "all seats as players",
    ("kuhn_poker", "--as", "pettingzoo", "--against", "cfr"): "all seats as players",
    ("wordle", "--as", "trl", "--against", "random"): "wordle has one seat",
    ("word_clue", "--as", "trl", "--seat", "1"): "random picks among the legal acts",
    ("search_selfplay", "--as", "trl", "--seat", "1"): "ended before solver_1 had a turn",
}


@pytest.mark.parametrize("words", CASES)
def test_refusals(words: tuple[str, ...], tmp_path: Path) -> None:
    assert CASES[words] in get_refusal("export-env", *words, "--to", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("library", TARGETS)
def test_every_template_is_python_and_names_the_game(library: str, tmp_path: Path) -> None:
    words = ["export-env", "negotiation", "--as", library, "--to", tmp_path / "env", "--option", "max_turns=6"]
    seat_options = [] if TARGETS[library].is_for_all_seats else ["--seat", "1", "--against", "random"]
    result = arena(*words, *seat_options, "--json")
    assert json.loads(result.out)["module"] == "arena_negotiation"
    assert {path.name for path in (tmp_path / "env").iterdir()} == {"arena_negotiation.py", "pyproject.toml"}
    source = (tmp_path / "env" / "arena_negotiation.py").read_text("utf-8")
    assigned = {ast.unparse(node.targets[0]): node for node in ast.parse(source).body if isinstance(node, ast.Assign)}
    text = ast.unparse(assigned["GAME"])
    assert "negotiation" in text and "'max_turns': 6" in text and ("'responder'" in text) == bool(seat_options)
    assert not {"MODULE", "SLUG", "PROJECT", "NEEDS", "TASK", "INTERPRETER"} & set(source.split())
    project = tomllib.loads((tmp_path / "env" / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["name"] == "arena-negotiation"
    assert TARGETS[library].needs in project["project"]["dependencies"]
    assert "already holds something" in get_refusal(*words, *seat_options)


def test_game_from_a_file_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert arena("init", "game", "coins").code == 0
    assert arena("export-env", "coins.py:Coins", "--as", "gymnasium", "--to", "env").code == 0
    source = (tmp_path / "env" / "arena_coins.py").read_text("utf-8")
    assert repr(f"{tmp_path.resolve()}/coins.py:Coins") in source and '"arena/coins-v0"' in source
