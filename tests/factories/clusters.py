"""Ray clusters on loopback, all of whose nodes run on this machine."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
RAY = Path(sys.executable).with_name("ray")


class Cluster:
    """Head and further nodes of a cluster; their processes are children, which `stop` ends."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # Ray's own 15 starves beside other work
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, cpus: int) -> None:
        """Start one more node, the head first, and wait until it is up."""
        head = ["--head", f"--port={self.address.partition(':')[2]}", "--include-dashboard=false"]
        first = [*head, f"--temp-dir={self._folder}"] if not self._processes else [f"--address={self.address}"]
        command = [str(RAY), "start", *first, f"--num-cpus={cpus}", "--object-store-memory=100000000", "--block"]
        with (self._folder / f"node-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(command, env=self.environ, stdout=log, stderr=log))
        deadline = time.monotonic() + 400
        while "Ray runtime started" not in (text := Path(log.name).read_text()):
            assert self._processes[-1].poll() is None and time.monotonic() < deadline, text
            time.sleep(0.2)

    def processes(self) -> list[psutil.Process]:
        """Return all processes of all nodes."""
        return [each for node in self._processes if node.poll() is None for each in _list_process_tree(node.pid)]

    def stop(self) -> None:
        """Kill all nodes."""
        running = self.processes()
        for process in running:
            process.kill()
        psutil.wait_procs(running, 30)
        for node in self._processes:
            node.wait(30)


def _list_process_tree(pid: int) -> list[psutil.Process]:
    try:
        node = psutil.Process(pid)
        return [node, *node.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def make_cluster() -> Iterator[Cluster]:
    """Yield a cluster without nodes, in a folder with a short path for its sockets."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        try:
            yield cluster
        finally:
            cluster.stop()
