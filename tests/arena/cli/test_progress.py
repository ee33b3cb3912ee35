"""Progress of a command: remaining-time estimates, lines without a terminal, and long commands."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from arena.cli import progress as module
from arena.cli.live import Screen
from arena.cli.progress import format_duration, format_remaining, progress
from tests.factories.commands import arena


def test_estimate_extrapolates_the_pace_so_far() -> None:
    assert format_remaining(100, 400, 60.0) == "about 3 min left"
    assert format_remaining(1, 2, 5.0) == "about 5 s left"
    assert format_remaining(1, 1000, 10.0) == "about 2.8 h left"
    assert format_remaining(0, 10, 5.0) == format_remaining(10, 10, 5.0) == ""
    assert [format_duration(s) for s in (0.1, 89, 91, 5399, 5401)] == ["1 s", "89 s", "2 min", "90 min", "1.5 h"]


def test_without_a_terminal_progress_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(module, "monotonic", lambda: float(next(clock)))
    with progress(8, quiet=False) as step:
        for _ in range(8):
            step()
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(re.fullmatch(r"arena: matches: \d of 8(, about .* left)?", line) for line in lines)
    with progress(8, quiet=True) as step:
        step()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["eval", "random", "--game", "nim", "--matches", "8"], "matches: 8 of 8"),
        (["tournament", "random", "first_legal", "--game", "nim", "--matches", "8"], "matches: 8 of 8"),
        (["matrix", "noop", "--game", "clinic", "--persons", "terse", "--tasks", "2"], "matches: 8 of 8"),
        (["check", "game", "nim", "--acts", "10", "--seeds", "2"], "checks: "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_long_commands_report_progress(command: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_INTERVAL", 0.0)
    result = arena(*command)
    assert result.code == 0 and f"arena: {message}" in result.err
    assert arena(*command, "--json").err == ""


@pytest.mark.slow
def test_imitation_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_INTERVAL", 0.0)
    small = ["play.matches=4", "policies.shared.imitate={scripted: [random], matches: 6, epochs: 2, minibatches: 2}"]
    settings = [part for setting in small for part in ("--set", setting)]
    command = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--iterations", "1", *settings]
    result = arena(*command, "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert re.search(r"imitate \(shared\): matches of random: 3 of 6, about \d+ s left", result.out)
    assert "imitate (shared): learning: 4 of 4" in result.out


def test_live_table_estimates_the_remaining_time() -> None:
    screen = Screen(Console(file=io.StringIO()), "table", 10)
    screen.rows = [{"iteration": k, "seconds": {"play": 40.0, "learn": 15.0, "commit": 5.0}} for k in (1, 2)]
    assert screen._format_remaining_time() == "about 8 min left"


@pytest.mark.parametrize(
    ("signal_name", "code", "word"), [("INT", 130, "interrupted"), ("TERM", 143, "ended by SIGTERM")]
)
def test_command_ended_early_gives_one_line(tmp_path: Path, signal_name: str, code: int, word: str) -> None:
    """The signal comes while the command loads a game."""
    (tmp_path / "stop.py").write_text(f"import signal\nsignal.raise_signal(signal.SIG{signal_name})\n")
    result = arena("show", "game", f"{tmp_path}/stop.py:Game")
    assert (result.code, result.line) == (code, word)


def test_ctrl_c_while_loading_gives_one_line() -> None:
    script = """
import builtins, signal
def load(name, *rest, load=builtins.__import__):
    if name == "arena.cli.main":
        signal.raise_signal(signal.SIGINT)
    return load(name, *rest)
from arena.__main__ import main
builtins.__import__ = load
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "arena: interrupted\n")


def test_an_interrupted_command_runs_exit_handlers_and_does_not_wait_for_threads() -> None:
    script = """
import atexit, threading, time
import arena.cli.main
from arena.__main__ import main
def interrupt():
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 143
arena.cli.main.run_cli = interrupt
atexit.register(print, "cleaned up")
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (143, "cleaned up\n")
