"""What surrounds a command: full disks, narrow encodings, few open files, hang-ups, and code of others that raises."""

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


def process(*words: str, python: tuple[str, ...] = (), **settings: Any) -> Any:
    """A command in a process of its own, to its end."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | streams.pop("env", {})
    command = [sys.executable, "-P", *python, "-m", "arena", *words]
    return subprocess.run(command, env=env, check=False, text=False, **streams)


def test_characters_that_the_output_cannot_encode_are_escaped() -> None:
    done = process("play", "--help", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii() and b"\\u" in done.stdout


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_the_output_is_one_line(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = process("--version", stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (1, b"arena: the output cannot be written: No space left on device\n")


def test_a_refusal_that_nobody_can_read_is_in_the_exit_code() -> None:
    with open("/dev/full", "wb") as full:
        assert process("list", "gmaes", stderr=full).returncode == 2


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_change_no_exit_code(closed: int) -> None:
    assert process("--version", preexec_fn=lambda: os.close(closed)).returncode == 0


def test_a_python_without_docstrings_is_refused() -> None:
    done = process("run", "selfplay", python=("-OO",))
    assert done.returncode == 2 and done.stdout == b""
    assert b"docstrings" in done.stderr and done.stderr.count(b"\n") == 1


def test_too_few_open_files_are_one_line_that_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[int] = []

    def scarce(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (30, hard))
        try:
            while True:
                kept.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            raise RuntimeError("a library's own words") from None

    monkeypatch.setattr("arena.cli.catalogue.list_entries", scarce)
    try:
        told = arena("list", "games")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in kept:
            os.close(descriptor)
    assert told.code == 1 and "ulimit -n allows this process 30" in told.line


def test_a_hang_up_ends_a_command_unless_it_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import signal\nsignal.raise_signal(signal.SIGHUP)\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    try:
        told = arena("show", "game", f"{tmp_path}/hang.py:Game")
        assert (told.code, told.line) == (129, "ended by SIGHUP")
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        assert "has no class 'Game'" in get_refusal("show", "game", f"{tmp_path}/hang.py:Game")
    finally:
        signal.signal(signal.SIGHUP, before)


# Code of others that raises

BROKEN = {
    "__init__": "def __init__(self, **options):\n        raise RuntimeError('no\\nworld')",
    "option": "def __init__(self, *, words='nowhere.txt', **options):\n        open(words)",
    "exit": "def __init__(self, **options):\n        raise SystemExit(0)",
    "set_up": "def set_up(self, rng, options):\n        raise KeyError('world')",
    "rules": "def rules(self):\n        raise ZeroDivisionError",
    "wordless": "def set_up(self, rng, options):\n        class Wordless(Exception):\n"
    "            def __str__(self):\n                raise ValueError\n        raise Wordless",
}
"""Methods of a game in somebody's own file, the fault in its fifth line or below."""
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "show": lambda game: ["show", "game", game],
    "play": lambda game: ["play", "--game", game, "--seat", "0=random", "--seat", "1=random"],
    "check": lambda game: ["check", "role", "player", "--game", game],
    "eval": lambda game: ["eval", "random", "--game", game, "--matches", "2"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("where", BROKEN)
def test_a_game_that_raises_is_one_line_that_names_its_file(tmp_path: Path, where: str, command: str) -> None:
    text = f"from games.tic_tac_toe import TicTacToe\n\n\nclass Own(TicTacToe):\n    {BROKEN[where]}\n"
    (tmp_path / "own.py").write_text(text)
    told = get_refusal(*COMMANDS[command](f"{tmp_path}/own.py:Own"))
    assert f"{tmp_path}/own.py, line " in told


@pytest.mark.parametrize("where", ["__init__", "exit"])
def test_a_run_of_a_game_that_raises_does_not_begin(tmp_path: Path, where: str) -> None:
    text = f"from games.tic_tac_toe import TicTacToe\n\n\nclass Own(TicTacToe):\n    {BROKEN[where]}\n"
    (tmp_path / "own.py").write_text(text)
    told = get_refusal("run", "selfplay", "--game", f"{tmp_path}/own.py:Own", "--out", tmp_path / "run")
    assert "own.py, line 6" in told and not (tmp_path / "run").exists()


def test_a_game_whose_option_has_no_default_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from games.tic_tac_toe import TicTacToe\nclass Own(TicTacToe):\n    def __init__(self, size):\n        pass\n"
    )
    told = get_refusal("run", "selfplay", "--game", f"{tmp_path}/own.py:Own", "--out", tmp_path / "run")
    assert "missing 1 required positional argument: 'size'" in told


def test_a_file_that_exits_when_it_is_imported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit(0)\n")
    assert "own.py cannot be imported: line 1: SystemExit" in get_refusal("show", "game", f"{tmp_path}/own.py:Own")


def test_an_error_of_arenas_own_code_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("arena.cli.catalogue.list_entries", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        arena("list", "games")


def test_a_traceback_is_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(
        f"from games.tic_tac_toe import TicTacToe\n\n\nclass Own(TicTacToe):\n    {BROKEN['set_up']}\n"
    )
    monkeypatch.setenv("ARENA_DEBUG", "1")
    with pytest.raises(KeyError, match="world"):
        arena("show", "game", f"{tmp_path}/own.py:Own")
