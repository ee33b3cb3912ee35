"""Clusters of several nodes on this machine: `ray start` starts each with its own address and object store.

If this machine lets tests hide files, a node sees none of the driver's files: models have to be sent to it.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil

RAY = Path(sys.executable).with_name("ray")
START_TIMEOUT = 120.0
"""Timeout in seconds for the start of a node."""
_ADDRESSES = count(2)


def can_hide_files() -> bool:
    """Return whether a process can have its own view of the file system."""
    with suppress(OSError):
        return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    return False


class Nodes:
    """A cluster whose head node has no resources. Added nodes do not see the folder `hidden`."""

    def __init__(self, hidden: Path) -> None:
        self.hidden, self._folder = (
            hidden,
            tempfile.mkdtemp(prefix="arena-ray-", dir="/tmp"),
        )  # as short as sockets need
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_niceness": "0",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_initial_delay_ms": "1000",
        }
        head_address = f"127.0.0.{next(_ADDRESSES)}"
        self.address = f"{head_address}:9{next(_ADDRESSES):03}"
        port = self.address.rpartition(":")[2]
        head = "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}"
        self._start("head", head_address, head, {}, cpus=0)

    def add(self, kind: str, cpus: int = 2) -> str:
        """Start a node with the custom resource `kind` and its own home; return its name."""
        number = next(_ADDRESSES)
        name, home = f"{kind}-{number}", Path(self._folder) / f"home-{number}"
        arguments = f"--address={self.address}", f'--resources={{"{kind}": 1}}'
        self._start(name, f"127.0.0.{number}", arguments, {"ARENA_HOME": str(home)}, cpus)
        return name

    def home(self, name: str) -> Path:
        """Return the ARENA_HOME of a node."""
        return Path(self._folder) / f"home-{name.rpartition('-')[2]}"

    def _start(self, name: str, address: str, arguments: Sequence[str], environ: Mapping[str, str], cpus: int) -> None:
        command = [
            str(RAY), "start", *arguments, f"--node-ip-address={address}", f"--num-cpus={cpus}",
            "--object-store-memory=100000000", "--disable-usage-stats",
        ]  # fmt: skip
        if name != "head" and can_hide_files():
            inside = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "-m", "sh", "-c", inside, str(self.hidden), *command]
        environ = {**self.environ, **environ, "ARENA_TEST_NODE": f"{os.getpid()}-{name}"}
        result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=START_TIMEOUT)
        assert result.returncode == 0, result

    def list_processes(self, name: str) -> list[psutil.Process]:
        """Return all processes of a node."""
        processes = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("ARENA_TEST_NODE") == f"{os.getpid()}-{name}":
                    processes.append(process)
        return processes

    def kill(self, name: str) -> None:
        """Kill all processes of a node at once, as if its power failed."""
        while alive := [one for one in self.list_processes(name) if one.is_running() and one.status() != "zombie"]:
            for process in alive:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
            time.sleep(0.05)

    def close(self, names: Sequence[str]) -> None:
        """Kill these nodes and the head."""
        for name in (*names, "head"):
            self.kill(name)
        shutil.rmtree(self._folder, ignore_errors=True)
