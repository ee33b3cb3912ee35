"""Scaled runs as separate processes: started, followed and ended, with all processes that they start."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from arena.store.run import RunFolder

LIMIT = 1200
"""Timeout in seconds; half a minute suffices on an idle machine."""


class ScaledCommand:
    """The command line in a new process, with an environment mark that identifies all its descendants."""

    def __init__(self, mark: str, *arguments: object, folder: Path | None = None, **variables: str) -> None:
        self.mark = f"{os.getpid()}-{mark}"
        argv = [sys.executable, "-P", "-m", "arena", *map(str, arguments)]
        # Ray sets variables when it is imported here, and with them it starts where a user's run may not.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environ = {
            **environment, "ARENA_TEST_MARK": self.mark, "PYTHONPATH": str(Path(__file__).parents[3]), **variables,
        }  # fmt: skip
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, env=environ, cwd=folder, stdout=pipe, stderr=pipe, text=True)

    def list_processes(self, title: str = "") -> list[psutil.Process]:
        """Return all processes with the mark whose title begins with `title`."""
        processes = []
        for process in psutil.process_iter():
            try:
                has_mark = process.environ().get("ARENA_TEST_MARK") == self.mark
                if (
                    has_mark
                    and process.status() != psutil.STATUS_ZOMBIE
                    and " ".join(process.cmdline()).startswith(title)
                ):
                    processes.append(process)
            except psutil.Error:
                continue
        return processes

    def wait_for_iterations(self, rows: int, folder: Path) -> None:
        """Wait until `rows` iterations are complete."""
        deadline = time.monotonic() + LIMIT
        while count_iterations(folder) < rows:
            assert self.process.poll() is None and time.monotonic() < deadline, self.process.communicate()
            time.sleep(0.1)

    def wait_for_end(self) -> tuple[int, str]:
        """Wait until the command and all its descendants have ended; return its exit code and stderr."""
        _, stderr = self.process.communicate(timeout=LIMIT)
        deadline = time.monotonic() + 60
        while remaining := self.list_processes():
            assert time.monotonic() < deadline, f"orphans: {[one.cmdline() for one in remaining]}"
            time.sleep(0.1)
        return self.process.returncode, stderr


def count_iterations(folder: Path) -> int:
    """Return the number of complete iterations."""
    metrics = folder / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def count_finished_matches(folder: Path) -> Counter[int]:
    """Return the number of finished matches per iteration, and check that each deal counts once."""
    rows = [row for row in RunFolder.open(folder).reader.matches() if row["status"] == "finished"]
    deals = Counter((row["iteration"], row["deal"]) for row in rows)
    assert max(deals.values()) == 1, "a match counts twice"
    return Counter(iteration for iteration, _ in deals.elements())
