"""The process of a tracker: `python -m arena.trackers.follow NAME RUN SEED`, with committed iterations on its stdin.

It sends each row of metrics.jsonl once, when its iteration is committed and thus never played again. What was sent
is kept beside, so that a run which goes on neither doubles a row nor leaves one out.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from arena.plain import printable
from arena.store.contents import METRICS
from arena.store.files import require_own, write_atomic
from arena.store.manifest import digest
from arena.store.reader import RunReader
from arena.trackers.base import FOLDER, Tracker, figures_of
from arena.trackers.samples import samples
from games.plain_files import open_plain

ENDING = 120
"""Seconds for what is left when the run is over, after which the kernel ends the process."""


class Follower:
    """One tracker of one run."""

    def __init__(self, name: str, run: Path, seed: int) -> None:
        self.name, self.reader, self.seed = name, RunReader(run), seed
        self.state = run / FOLDER / f"{name}.json"
        self.id, self.sent = self._known()
        self.tracker: Tracker | None = None
        self._waiting: list[dict[str, Any]] = []
        """Rows that are not committed yet."""
        self._read = 0
        """Bytes of the metrics that were read."""

    def follow(self, committed: int) -> None:
        """Send what is committed and was not sent; a row that fails counts as not sent."""
        rows = [*self._waiting, *self._new_rows()]
        self._waiting = [row for row in rows if row["iteration"] > committed]
        for row in rows:
            if self.sent < row["iteration"] <= committed:
                self._send(row)

    def _send(self, row: dict[str, Any]) -> None:
        k, before = row["iteration"], self.sent
        if self.tracker is None:
            self.tracker = opened(self.name, self.reader, self.id)
        shown = samples(self.reader.log, k, self.seed)
        self._keep(k)  # first, so that a process which is killed here has sent it once at most
        try:
            self.tracker.log(k, dict(figures_of(row)), shown)
        except BaseException:
            self._keep(before)
            raise

    def _new_rows(self) -> list[dict[str, Any]]:
        """The whole lines that the metrics have gained."""
        try:
            with open_plain(self.reader.path / METRICS) as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]

    def close(self) -> None:
        """Have the tracker write what is left."""
        if self.tracker:
            self.tracker.close()

    def _known(self) -> tuple[str, int]:
        """The run's id at the tracker, and the last iteration that was sent."""
        require_own(self.state)
        try:
            kept = json.loads(self.state.read_bytes())
            return str(kept["id"]), int(kept["iteration"])
        except FileNotFoundError:
            return digest({"run": str(self.reader.path), "began": self.reader.environment()})[:16], 0

    def _keep(self, iteration: int) -> None:
        self.sent = iteration
        write_atomic(self.state, json.dumps({"id": self.id, "iteration": iteration}) + "\n")


def opened(name: str, reader: RunReader, id: str) -> Tracker:
    """The tracker's own side, which may take a while and may fail in any way."""
    about: dict[str, Any] = reader.environment().get("experiment") or {}
    if name == "wandb":
        from arena.trackers.wandb_run import WandbRun

        return WandbRun(reader.path, id, about)
    from arena.trackers.trackio_run import TrackioRun

    return TrackioRun(reader.path, id, about)


def committed_iterations(pipe: int) -> Iterator[int]:
    """The latest number on the pipe, again and again until it ends; from then on the kernel's clock runs."""
    told: SimpleQueue[int | None] = SimpleQueue()

    def read() -> None:
        with os.fdopen(pipe, "rb") as lines:
            for line in lines:
                told.put(int(line))
        signal.alarm(ENDING)
        told.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (number := told.get()) is not None:
        yield number


def main() -> int:
    """Follow the run until it ends; the last line that is printed says what went wrong."""
    name, run, seed = sys.argv[1:]
    os.nice(5)
    pipe, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a tracker that asks for a password gets no answer
    try:
        follower = Follower(name, Path(run), int(seed))
        for number in committed_iterations(pipe):
            follower.follow(number)
        follower.close()
    except Exception as error:  # noqa: BLE001 somebody else's code, which may fail in any way
        traceback.print_exc()
        print(f"{type(error).__name__}: {printable(str(error))}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
