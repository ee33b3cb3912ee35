"""Long-running confined programs: they answer through streams, see no resources, and end with their parent."""

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
PROBE = """
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


def start_cell(code: str) -> subprocess.Popen[bytes]:
    """Start a confined Python that runs this code."""
    python = find_interpreter()
    command, limits = [f"{HOME}/bin/python3", *OPTIONS, "-c", code], cells.make_limits(512 << 20, 10, file_bytes=0)
    return cells.start_program(command, [*python.folders, *python.files], ENVIRONMENT, limits)


def ask(cell: subprocess.Popen[bytes], line: str) -> str:
    assert cell.stdin and cell.stdout
    cell.stdin.write(f"{line}\n".encode())
    return os.read(cell.stdout.fileno(), 10_000).decode().strip()


def list_descendants() -> set[int]:
    """Return the ids of all descendants of this process."""
    pids, new = set[int](), {os.getpid()}
    while new:
        pids |= new
        lines = [task.read_text() for pid in new for task in Path(f"/proc/{pid}/task").glob("*/children")]
        new = {int(pid) for line in lines for pid in line.split()} - pids
    return pids - {os.getpid()}


def test_cell_answers_repeatedly_and_leaves_no_process() -> None:
    before = list_descendants()
    cell = start_cell(ECHO)
    assert [ask(cell, "hello"), ask(cell, "again")] == ["HELLO", "AGAIN"] and len(list_descendants() - before) == 3
    cells.stop_cell(cell)
    assert list_descendants() <= before


def test_cell_sees_no_files_network_processes_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "token")
    cell = start_cell(PROBE)
    assert ask(cell, "") == f"[] {sorted(ENVIRONMENT)}"
    cells.stop_cell(cell)


def test_cell_outlives_the_thread_that_started_it() -> None:
    started_cells = list[subprocess.Popen[bytes]]()
    thread = threading.Thread(target=lambda: started_cells.append(start_cell(ECHO)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert ask(started_cells[0], "still") == "STILL"
    cells.stop_cell(started_cells[0])


def test_cell_ends_with_its_parent_process() -> None:
    code = (
        "import time\nfrom tests.simulators.test_confine_cells import ECHO, ask, list_descendants, start_cell\n"
        "cell = start_cell(ECHO)\nask(cell, 'x')\nprint(*list_descendants(), flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
        time.sleep(0.05)
    remaining = [
        pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_text()
    ]
    assert remaining == []


def test_missing_mount_is_reported_in_one_line_and_leaves_no_process() -> None:
    before = list_descendants()
    with pytest.raises(ConfineError, match=r"echo cannot be confined here: mount .*: No such file") as error:
        cells.start_program(["/bin/echo"], [("/no-such-file", "/x")], {}, cells.make_limits(1 << 30, 10, 0))
    assert "\n" not in str(error.value) and list_descendants() <= before


def test_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise in the waiting thread, as happens when a match step is abandoned."""
    before = list_descendants()

    def raise_interrupt(self: Any, timeout: float | None = None) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        start_cell(ECHO)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(thread.name == "arena-cell" for thread in threading.enumerate()):
        time.sleep(0.05)
    assert list_descendants() <= before
