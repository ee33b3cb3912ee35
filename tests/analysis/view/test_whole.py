"""Children that read a whole run end with the page's server, however that ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SERVER = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock
import analysis.view.whole as whole

def endless(run):
    import os
    (run / "pid").write_text(str(os.getpid()))
    while True:
        pass

if __name__ == "__main__":
    whole.LARGE = 0
    index = Mock(fingerprint=lambda: "now")
    index.reader.path = Path(sys.argv[1])
    index.reader.log.folder.glob = lambda pattern: []
    whole.Whole(index).figures(endless)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's end is Linux's")
def test_a_child_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    server = subprocess.Popen([sys.executable, script, tmp_path], stderr=subprocess.DEVNULL)
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    finally:
        server.kill()
        server.wait()
    child = int((tmp_path / "pid").read_text())
    try:
        until(lambda: not Path(f"/proc/{child}").exists())
    finally:
        if Path(f"/proc/{child}").exists():
            os.kill(child, signal.SIGKILL)


def until(happened: Callable[[], bool]) -> None:
    """Wait a minute at most."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
