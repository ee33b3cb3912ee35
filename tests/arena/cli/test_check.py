"""`arena check game` and `check role`: output, exit codes, and one-line errors for bad names."""

import json
from pathlib import Path

import pytest

from tests.factories.commands import arena, get_refusal
from tests.factories.thorough import count_cases

LEAKY_GAME = """
from games.kuhn_poker import KuhnPoker
class Leaky(KuhnPoker):
    def public(self):
        return {**super().public(), "[red]both\\x1b[31m": str(self.state.history()[:2])}
"""


def test_a_sound_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = arena("check", "game", "kuhn_poker", "--seeds", "5", "--acts", "200")
    assert result.code == 0 and result.out.splitlines()[-1] == "kuhn_poker: meets the contract of games"
    assert (
        "views at 2 of 2 seats, 5 seeds each" in result.out and "200 acts" in result.out and "FAILED" not in result.out
    )


def test_json_findings_for_a_foreign_game() -> None:
    result = arena("check", "game", "pettingzoo:tictactoe_v3", "--seeds", "2", "--acts", "50", "--json")
    findings = json.loads(result.out)
    assert result.code == 0 and all(finding["ok"] for finding in findings)
    assert {"name", "ok", "detail", "seconds"} == set(findings[0]) and findings[-1]["name"] == "fuzz"


def test_unchecked_property_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = arena("check", "game", "wordle", "--seeds", "2", "--acts", "50")
    assert result.code == 0 and "not checked  secrets" in result.out
    assert result.out.splitlines()[-1] == "wordle: meets the contract of games (not checked: secrets)"
    findings = json.loads(arena("check", "game", "wordle", "--seeds", "2", "--acts", "50", "--json").out)
    assert [finding["ok"] for finding in findings if finding["name"] == "secrets"] == [None]


@pytest.mark.thorough
def test_simulator_passes_its_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    seeds = count_cases(3, 10)
    result = arena(
        "check", "game", "clinic", "--option", "diseases=6", "--seeds", seeds, "--acts", count_cases(50, 100)
    )
    assert result.code == 0 and result.out.splitlines()[-1] == "clinic: meets the contract of simulators"
    assert f"score 1 on each of {seeds} seeds" in result.out and "nothing found" in result.out


def test_a_game_that_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    path = tmp_path / "leaky.py"
    path.write_text(LEAKY_GAME)
    result = arena("check", "game", f"{path}:Leaky", "--seeds", "3", "--acts", "50")
    assert result.code == 1 and "FAILED" in result.out and "first sees what only others know" in result.out
    assert "fails secrets" in result.out and "\x1b[31mh" not in result.out
    findings = json.loads(arena("check", "game", f"{path}:Leaky", "--seeds", "3", "--acts", "50", "--json").out)
    assert [finding["name"] for finding in findings if not finding["ok"]] == ["secrets"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nim", "--option", "pile=3"], "nim: there is no option 'pile' — did you mean 'piles'?"),
        (["kuhn_pokr"], "unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        (["textarena:Chess-v0"], "textarena:Chess-v0: TextArena cannot set up Chess-v0: SyntaxError"),
        (["openspiel:hex(size=3)"], "openspiel:hex"),
        (["nowhere.py:Game"], "there is no file "),
    ],
)
def test_bad_names(words: list[str], line: str) -> None:
    assert line in get_refusal("check", "game", *words)


def test_help_names_examples_and_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = arena("check", "game", "--help")
    assert result.code == 0 and "textarena:TicTacToe-v0" in result.out and "exit with code 1" in result.out


def test_role_for_another_game_suggests_the_game_option(tmp_path: Path) -> None:
    role = tmp_path / "racer.yaml"
    role.write_text('role: racer\nsystem: "{{ rules }}"\nturn: "Total {{ public.total }}"\nreply: {format: free}\n')
    assert "name the role's own game with --game" in get_refusal("check", "role", role)
    assert "--game" not in get_refusal("check", "role", role, "--game", "nim")


def test_a_role_is_shown_line_by_line_at_every_seat(tmp_path: Path) -> None:
    role = tmp_path / "mine.yaml"
    role.write_text(
        "role: mine\nsystem: '{{ rules }}'\nturn: |\n"
        "  {% if first %}Values {{ private['values'] | join(' ') }}.{% endif %}\n"
        "  {% for m in messages %}{{ m.sender }}: {{ m.text }}\n  {% endfor %}\n"
    )
    result = arena("check", "role", role, "--game", "negotiation")
    assert result.code == 0, result.err
    assert "— responder, turn 1 —\n│ Values 1 3 1.\n│ opener: OFFER 0 0 0\n" in result.out
    assert "— opener, turn 2 —\n│ responder: " in result.out
    assert "opener, turn" not in arena("check", "role", role, "--game", "negotiation", "--seat", "responder").out
