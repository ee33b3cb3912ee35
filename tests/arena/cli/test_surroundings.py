"""The environment of a command: full disks, narrow encodings, few open files, hang-ups and foreign code that raises."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories.commands import arena, get_refusal

ROOT = Path(__file__).parents[3]


def run_in_process(*words: str, python: tuple[str, ...] = (), **settings: Any) -> Any:
    """Run a command in a process of its own, to its end."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | streams.pop("env", {})
    command = [sys.executable, "-P", *python, "-m", "arena", *words]
    return subprocess.run(command, env=env, check=False, text=False, **streams)


def test_characters_that_the_output_cannot_encode_are_escaped() -> None:
    result = run_in_process("play", "--help", env={"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.isascii() and b"\\u" in result.stdout


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disk_under_stdout_gives_one_line(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        result = run_in_process("--version", stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert (result.returncode, result.stderr) == (1, b"arena: the output cannot be written: No space left on device\n")


def test_refusal_with_full_stderr_keeps_its_exit_code() -> None:
    with open("/dev/full", "wb") as full:
        assert run_in_process("list", "gmaes", stderr=full).returncode == 2


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_change_no_exit_code(closed: int) -> None:
    assert run_in_process("--version", preexec_fn=lambda: os.close(closed)).returncode == 0


def test_a_python_without_docstrings_is_refused() -> None:
    result = run_in_process("run", "selfplay", python=("-OO",))
    assert result.returncode == 2 and result.stdout == b""
    assert b"docstrings" in result.stderr and result.stderr.count(b"\n") == 1


def test_too_few_open_files_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors: list[int] = []

    def exhaust_descriptors(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (30, hard))
        try:
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            raise RuntimeError("a library's own words") from None

    monkeypatch.setattr("arena.cli.catalogue.list_entries", exhaust_descriptors)
    try:
        result = arena("list", "games")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in descriptors:
            os.close(descriptor)
    assert result.code == 1 and "ulimit -n allows this process 30" in result.line


def test_a_hang_up_ends_a_command_unless_it_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import signal\nsignal.raise_signal(signal.SIGHUP)\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    try:
        result = arena("show", "game", f"{tmp_path}/hang.py:Game")
        assert (result.code, result.line) == (129, "ended by SIGHUP")
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        assert "has no class 'Game'" in get_refusal("show", "game", f"{tmp_path}/hang.py:Game")
    finally:
        signal.signal(signal.SIGHUP, before)


# Code of others that raises

BROKEN_METHODS = {
    "__init__": "def __init__(self, **options):\n        raise RuntimeError('no\\nworld')",
    "option": "def __init__(self, *, words='nowhere.txt', **options):\n        open(words)",
    "exit": "def __init__(self, **options):\n        raise SystemExit(0)",
    "set_up": "def set_up(self, rng, options):\n        raise KeyError('world')",
    "rules": "def rules(self):\n        raise ZeroDivisionError",
    "wordless": "def set_up(self, rng, options):\n        class Wordless(Exception):\n"
    "            def __str__(self):\n                raise ValueError\n        raise Wordless",
}
"""Methods of a game in a user's file, with the fault in its fifth line or below."""
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "show": lambda game: ["show", "game", game],
    "play": lambda game: ["play", "--game", game, "--seat", "0=random", "--seat", "1=random"],
    "check": lambda game: ["check", "role", "player", "--game", game],
    "eval": lambda game: ["eval", "random", "--game", game, "--matches", "2"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", BROKEN_METHODS)
def test_a_game_that_raises_is_one_line_that_names_its_file(tmp_path: Path, fault: str, command: str) -> None:
    text = f"from games.tic_tac_toe import TicTacToe\n\n\nclass Own(TicTacToe):\n    {BROKEN_METHODS[fault]}\n"
    (tmp_path / "own.py").write_text(text)
    line = get_refusal(*COMMANDS[command](f"{tmp_path}/own.py:Own"))
    assert f"{tmp_path}/own.py, line " in line


@pytest.mark.parametrize("fault", ["__init__", "exit"])
def test_run_of_a_game_that_raises_creates_no_folder(tmp_path: Path, fault: str) -> None:
    text = f"from games.tic_tac_toe import TicTacToe\n\n\nclass Own(TicTacToe):\n    {BROKEN_METHODS[fault]}\n"
    (tmp_path / "own.py").write_text(text)
    line = get_refusal("run", "selfplay", "--game", f"{tmp_path}/own.py:Own", "--out", tmp_path / "run")
    assert "own.py, line 6" in line and not (tmp_path / "run").exists()


def test_a_game_whose_option_has_no_default_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from games.tic_tac_toe import TicTacToe\nclass Own(TicTacToe):\n    def __init__(self, size):\n        pass\n"
    )
    line = get_refusal("run", "selfplay", "--game", f"{tmp_path}/own.py:Own", "--out", tmp_path / "run")
    assert "missing 1 required positional argument: 'size'" in line


def test_a_file_that_exits_when_it_is_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit(0)\n")
    assert "own.py cannot be imported: line 1: SystemExit" in get_refusal("show", "game", f"{tmp_path}/own.py:Own")


def test_an_error_of_arenas_own_code_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("arena.cli.catalogue.list_entries", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        arena("list", "games")


def test_debug_variable_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(
        f"from games.tic_tac_toe import TicTacToe\n\n\nclass Own(TicTacToe):\n    {BROKEN_METHODS['set_up']}\n"
    )
    monkeypatch.setenv("ARENA_DEBUG", "1")
    with pytest.raises(KeyError, match="world"):
        arena("show", "game", f"{tmp_path}/own.py:Own")
