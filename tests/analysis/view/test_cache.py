"""Child processes that read a whole run end with the page's server."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories.made_run import make_run

SERVER = """
import sys
from pathlib import Path
import analysis.view.cache as cache
from analysis.view.index import Index
from arena.store.reader import RunReader

def endless(run):
    import os
    (run / "pid").write_text(str(os.getpid()))
    while True:
        pass

if __name__ == "__main__":
    cache.MIN_CHILD_BYTES = 0
    cache.FigureCache(Index(RunReader(Path(sys.argv[1])))).get(endless)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's end is Linux's")
def test_a_child_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    run = make_run(tmp_path / "run").path
    server = subprocess.Popen([sys.executable, script, run], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (run / "pid").exists() and (run / "pid").read_text() != "")
    finally:
        server.kill()
        server.wait()
    child = int((run / "pid").read_text())
    try:
        wait_until(lambda: not Path(f"/proc/{child}").exists())
    finally:
        if Path(f"/proc/{child}").exists():
            os.kill(child, signal.SIGKILL)


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait at most a minute."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
