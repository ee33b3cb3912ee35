"""`arena check game`: what it prints, its exit codes, and that bad names are told in one line."""

import json
from pathlib import Path

import pytest

from tests.factories.commands import arena, get_refusal
from tests.factories.thorough import count_cases

BROKEN = """
from games.kuhn_poker import KuhnPoker
class Leaky(KuhnPoker):
    def public(self):
        return {**super().public(), "[red]both\\x1b[31m": str(self.state.history()[:2])}
"""


def test_a_sound_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = arena("check", "game", "kuhn_poker", "--seeds", "5", "--acts", "200")
    assert told.code == 0 and told.out.splitlines()[-1] == "kuhn_poker: keeps what games promise"
    assert "views at 2 of 2 seats, 5 seeds each" in told.out and "200 acts" in told.out and "FAILED" not in told.out


def test_for_scripts_and_for_games_of_others() -> None:
    told = arena("check", "game", "pettingzoo:tictactoe_v3", "--seeds", "2", "--acts", "50", "--json")
    findings = json.loads(told.out)
    assert told.code == 0 and all(finding["ok"] for finding in findings)
    assert {"name", "ok", "detail", "seconds"} == set(findings[0]) and findings[-1]["name"] == "fuzz"


def test_what_could_not_be_checked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = arena("check", "game", "wordle", "--seeds", "2", "--acts", "50")
    assert told.code == 0 and "not checked  secrets" in told.out
    assert told.out.splitlines()[-1] == "wordle: keeps what games promise (not checked: secrets)"
    findings = json.loads(arena("check", "game", "wordle", "--seeds", "2", "--acts", "50", "--json").out)
    assert [finding["ok"] for finding in findings if finding["name"] == "secrets"] == [None]


@pytest.mark.thorough
def test_a_simulator_is_held_to_its_yardsticks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    seeds = count_cases(3, 10)
    told = arena("check", "game", "clinic", "--option", "diseases=6", "--seeds", seeds, "--acts", count_cases(50, 100))
    assert told.code == 0 and told.out.splitlines()[-1] == "clinic: keeps what simulators promise"
    assert f"score 1 on each of {seeds} seeds" in told.out and "nothing found" in told.out


def test_a_game_that_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    path = tmp_path / "leaky.py"
    path.write_text(BROKEN)
    told = arena("check", "game", f"{path}:Leaky", "--seeds", "3", "--acts", "50")
    assert told.code == 1 and "FAILED" in told.out and "first sees what only others know" in told.out
    assert "does not keep secrets" in told.out and "\x1b[31mh" not in told.out
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


def test_help_teaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = arena("check", "game", "--help")
    assert told.code == 0 and "textarena:TicTacToe-v0" in told.out and "exit with code 1" in told.out


def test_a_role_for_another_game_is_told_to_name_it(tmp_path: Path) -> None:
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
    told = arena("check", "role", role, "--game", "negotiation")
    assert told.code == 0, told.err
    assert "— responder, turn 1 —\n│ Values 1 3 1.\n│ opener: OFFER 0 0 0\n" in told.out
    assert "— opener, turn 2 —\n│ responder: " in told.out
    assert "opener, turn" not in arena("check", "role", role, "--game", "negotiation", "--seat", "responder").out
