"""Programs that stay in a cell: they answer through their streams, see nothing, and end with whoever started them."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from simulators.confine import ConfineError, cells
from simulators.confine.code import find_obstacle
from simulators.confine.interpreter import ENVIRONMENT, HOME, OPTIONS, find_interpreter

pytestmark = pytest.mark.skipif(bool(find_obstacle()), reason="this system cannot confine")

ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
LOOK = """
import ctypes, os, sys
for line in sys.stdin:
    seen = [path for path in ("/etc/passwd", "/proc/self", "/dev/null", "/bin/sh", "/code.py") if os.path.exists(path)]
    libc = ctypes.CDLL(None)
    seen += ["network"] * (libc.socket(2, 1, 0) >= 0) + ["fork"] * (libc.fork() >= 0) + ["root"] * (os.getuid() == 0)
    try:
        print("x", file=open("/scratch/file", "w"), flush=True)
        seen.append("writes")
    except OSError:
        pass
    print(seen, sorted(os.environ), flush=True)
"""


def started(code: str) -> subprocess.Popen[bytes]:
    """A Python in a cell that runs this code."""
    python = find_interpreter()
    command, allowed = [f"{HOME}/bin/python3", *OPTIONS, "-c", code], cells.make_limits(512 << 20, 10, file_bytes=0)
    return cells.start_program(command, [*python.folders, *python.files], ENVIRONMENT, allowed)


def say(cell: subprocess.Popen[bytes], line: str) -> str:
    assert cell.stdin and cell.stdout
    cell.stdin.write(f"{line}\n".encode())
    return os.read(cell.stdout.fileno(), 10_000).decode().strip()


def processes() -> set[int]:
    """All processes that this one started, and theirs."""
    found, new = set[int](), {os.getpid()}
    while new:
        found |= new
        lines = [task.read_text() for pid in new for task in Path(f"/proc/{pid}/task").glob("*/children")]
        new = {int(pid) for line in lines for pid in line.split()} - found
    return found - {os.getpid()}


def test_it_answers_again_and_again_and_nothing_of_it_remains() -> None:
    before = processes()
    cell = started(ECHO)
    assert [say(cell, "hello"), say(cell, "again")] == ["HELLO", "AGAIN"] and len(processes() - before) == 3
    cells.stop_cell(cell)
    assert processes() <= before


def test_it_sees_no_files_network_processes_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "token")
    cell = started(LOOK)
    assert say(cell, "") == f"[] {sorted(ENVIRONMENT)}"
    cells.stop_cell(cell)


def test_it_outlives_the_thread_that_asked_for_it() -> None:
    made = list[subprocess.Popen[bytes]]()
    thread = threading.Thread(target=lambda: made.append(started(ECHO)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert say(made[0], "still") == "STILL"
    cells.stop_cell(made[0])


def test_it_ends_with_the_process_that_started_it() -> None:
    code = (
        "import time\nfrom tests.simulators.test_confine_cells import ECHO, processes, say, started\n"
        "cell = started(ECHO)\nsay(cell, 'x')\nprint(*processes(), flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    inside = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(inside) == 3
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}/cmdline").exists() for pid in inside):
        time.sleep(0.05)
    left = [pid for pid in inside if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text()]
    assert left == []


def test_what_cannot_be_shown_is_one_line_and_leaves_nothing() -> None:
    before = processes()
    with pytest.raises(ConfineError, match=r"echo cannot be confined here: mount .*: No such file") as why:
        cells.start_program(["/bin/echo"], [("/no-such-file", "/x")], {}, cells.make_limits(1 << 30, 10, 0))
    assert "\n" not in str(why.value) and processes() <= before


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the waiting thread, as a step of a match that is abandoned gets."""
    before = processes()

    def interrupted(self: Any, timeout: float | None = None) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        started(ECHO)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(one.name == "arena-cell" for one in threading.enumerate()):
        time.sleep(0.05)
    assert processes() <= before
