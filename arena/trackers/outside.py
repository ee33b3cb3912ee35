"""A tracker in a process of its own, seen from the run: whatever it does, the run neither waits for it nor ends by it.

The process reads the run's folder. All that comes to it, through a pipe, is the last iteration that was committed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.plain import printable, without_secrets
from arena.process import environment_of_children
from arena.store import checkpoints
from arena.store.files import make_folder, require_own
from arena.trackers.base import FOLDER

CHILD = "arena.trackers.follow"
CLOSING = 60.0
"""Seconds that a run which is over waits for a tracker's last rows."""
INTERRUPTED = 3.0
"""The same for a run that was stopped."""


class TrackerError(Exception):
    """A tracker that failed; the message says why in one line."""


class Outside:
    """The run's end of the pipe."""

    def __init__(self, name: str, run: Path, seed: int) -> None:
        """Start the process, which catches up with what is committed; OSError or StoreError where it cannot begin."""
        self.run, self._told = run.resolve(), 0
        self.output = make_folder(run / FOLDER) / f"{name}.log"
        require_own(self.output)
        command = [sys.executable, "-P", "-m", CHILD, name, str(self.run), str(seed)]
        with self.output.open("wb") as output:
            self._child = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                env=environment_of_children(), start_new_session=True,
            )  # fmt: skip
        assert self._child.stdin is not None
        self._pipe = self._child.stdin
        os.set_blocking(self._pipe.fileno(), False)
        self._tell()

    def add(self, row: Mapping[str, Any]) -> None:
        """Tell of the iterations that were committed since; TrackerError where the process has ended."""
        self._tell()
        if self._child.poll() is not None:
            raise TrackerError(self._why())

    def close(self, interrupted: bool) -> None:
        """Let the process end, which it does by itself however long it takes; TrackerError where it did not in time."""
        self._pipe.close()
        try:
            ended = self._child.wait(INTERRUPTED if interrupted else CLOSING)
        except subprocess.TimeoutExpired:
            raise TrackerError("not done yet, and has a minute more to write what is left") from None
        if ended:
            raise TrackerError(self._why())

    def _tell(self) -> None:
        """Write the number where the pipe takes it: one that is stuck hears the next."""
        committed = checkpoints.committed(self.run)
        if committed > self._told:
            try:
                self._pipe.write(f"{committed}\n".encode())
                self._told = committed
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._child.wait(CLOSING)

    def _why(self) -> str:
        """Return the signal that ended the process, or else the last line that it wrote, without keys."""
        code = self._child.returncode
        if code and code < 0:
            return f"it was ended by signal {-code} ({signal.strsignal(-code)}; its last words are in {self.output})"
        with self.output.open("rb") as file:
            file.seek(max(0, self.output.stat().st_size - 4000))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        said = printable(without_secrets(lines[-1]))[:300] if lines else f"it ended with {code}"
        return f"{said} (more in {self.output})"
