"""Scaled runs as processes of their own: begun, followed and ended, with all that they start."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from arena.store.run import RunFolder

LIMIT = 1200
"""Seconds: on a machine that does nothing else it is half a minute."""


class Scaled:
    """The command line in a new process, with a mark by which all that it starts is found."""

    def __init__(self, mark: str, *words: object, folder: Path | None = None, **variables: str) -> None:
        self.mark = f"{os.getpid()}-{mark}"
        argv = [sys.executable, "-P", "-m", "arena", *map(str, words)]
        # Ray sets variables when it is imported here, and with them it starts where a user's run may not.
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environ = {
            **own, "ARENA_TEST_MARK": self.mark, "PYTHONPATH": str(Path(__file__).parents[3]), **variables,
        }  # fmt: skip
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, env=environ, cwd=folder, stdout=pipe, stderr=pipe, text=True)

    def family(self, title: str = "") -> list[psutil.Process]:
        """All that carry the mark, or those of them whose title begins so."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("ARENA_TEST_MARK") == self.mark
                if mine and process.status() != psutil.STATUS_ZOMBIE and " ".join(process.cmdline()).startswith(title):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def until(self, rows: int, folder: Path) -> None:
        """Wait until so many iterations are complete."""
        deadline = time.monotonic() + LIMIT
        while done(folder) < rows:
            assert self.process.poll() is None and time.monotonic() < deadline, self.process.communicate()
            time.sleep(0.1)

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said on stderr, once all that it started has ended, too."""
        _, said = self.process.communicate(timeout=LIMIT)
        deadline = time.monotonic() + 60
        while left := self.family():
            assert time.monotonic() < deadline, f"orphans: {[one.cmdline() for one in left]}"
            time.sleep(0.1)
        return self.process.returncode, said


def done(folder: Path) -> int:
    """How many iterations are complete."""
    metrics = folder / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def finished(folder: Path) -> Counter[int]:
    """How many matches of each iteration were finished; every deal once."""
    rows = [row for row in RunFolder.open(folder).log.rows() if row["status"] == "finished"]
    deals = Counter((row["iteration"], row["deal"]) for row in rows)
    assert max(deals.values()) == 1, "a match counts twice"
    return Counter(iteration for iteration, _ in deals.elements())
