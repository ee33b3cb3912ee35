"""Threads that send a run's metrics to its trackers, one per tracker, so that no tracker can stop or delay the run."""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from arena.errors import StoreError
from arena.plain import printable, remove_secrets
from arena.store import checkpoints
from arena.store.files import make_folder, require_regular_file, write_atomic
from arena.store.manifest import digest
from arena.store.reader import RunReader
from arena.trackers.samples import SampleMatch, draw_samples
from arena.trackers.settings import TrackerName

CLOSE_TIMEOUT = 60.0
"""Seconds that a finished run waits for each tracker to send its last rows."""
INTERRUPT_TIMEOUT = 3.0
"""Seconds that an interrupted run waits for each tracker to send its last rows."""
_LOG = logging.getLogger(__name__)


class Tracker(Protocol):
    """Connection to one run in a tracking program such as TensorBoard. Its methods may raise any exception."""

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """Record an iteration's metrics, named like `learn/shared/loss`, and sample matches. Called once for each."""

    def close(self) -> None:
        """Write or send all buffered data and end the connection."""


class TrackerError(Exception):
    """Failure of a tracker; the message is one line for the user."""


class TrackerThread:
    """Daemon thread that sends a run's committed iterations to one tracker, each exactly once.

    The number of the last iteration sent is saved in `RUN/trackers/NAME.json`, so that a resumed run neither repeats
    nor skips one.
    """

    def __init__(self, name: str, run: Path, seed: int) -> None:
        """Load the saved state of tracker `name` and start the thread, which sends all unsent committed iterations.

        `run` is the run folder; `seed` draws the sample matches. Raises StoreError if the saved state is not a regular
        file.
        """
        self.name, self.reader, self.seed = name, RunReader(run), seed
        self.state = make_folder(run / "trackers") / f"{name}.json"
        require_regular_file(self.state)
        self.id, self.last_sent = self._load_state()
        self.error: BaseException | None = None
        self._tracker: Tracker | None = None
        self._committed, self._is_closing, self._wake = 0, False, threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()
        self.update()

    def update(self) -> None:
        """Wake the thread to send newly committed iterations, and return at once. Raises TrackerError if it failed."""
        self._check()
        self._committed = checkpoints.newest_committed(self.reader.path)
        self._wake.set()

    def close(self, timeout: float) -> None:
        """Send the remaining rows and close the tracker. Raises TrackerError on failure or after `timeout` seconds."""
        self.update()
        self._is_closing = True
        self._wake.set()
        self._thread.join(timeout)
        self._check()
        if self._thread.is_alive():
            raise TrackerError(f"not finished after {timeout:g} s: arena resume sends the missing rows")

    def _check(self) -> None:
        if self.error is not None:
            raise TrackerError(f"{type(self.error).__name__}: {self.error}") from self.error

    def _work(self) -> None:
        try:
            is_closing = False
            while not is_closing:
                self._wake.wait()
                self._wake.clear()
                is_closing = self._is_closing
                self._send_committed()
            if self._tracker:
                self._tracker.close()
        except BaseException as error:  # noqa: BLE001 a tracker's code may raise anything, SystemExit included
            self.error = error

    def _send_committed(self) -> None:
        committed = self._committed
        if self.last_sent >= committed:
            return
        for row in self.reader.metrics():
            if self.last_sent < row["iteration"] <= committed:
                self._send(row)

    def _send(self, row: Mapping[str, Any]) -> None:
        iteration, before = row["iteration"], self.last_sent
        if self._tracker is None:
            self._tracker = open_tracker(self.name, self.reader, self.id)
        samples = draw_samples(self.reader.log, iteration, self.seed)
        self._save_state(iteration)  # before sending: a run killed in between must not send the row twice
        try:
            self._tracker.log(iteration, dict(flatten_figures(row)), samples)
        except BaseException:
            self._save_state(before)
            raise

    def _load_state(self) -> tuple[str, int]:
        """Return the run's id at the tracker, and the last iteration sent; a new id and 0 without saved state."""
        try:
            saved = json.loads(self.state.read_bytes())
            return str(saved["id"]), int(saved["iteration"])
        except FileNotFoundError:
            return digest({"run": str(self.reader.path), "began": self.reader.environment()})[:16], 0

    def _save_state(self, iteration: int) -> None:
        self.last_sent = iteration
        write_atomic(self.state, json.dumps({"id": self.id, "iteration": iteration}) + "\n")


def open_tracker(name: str, reader: RunReader, id: str) -> Tracker:
    """Import the module of tracker `name` and open the run in it under `id`. May be slow and raise any exception."""
    experiment: Mapping[str, Any] = reader.environment().get("experiment") or {}
    tracker: Tracker = import_module(f"arena.trackers.{name}_run").Run(reader.path, id, experiment)
    return tracker


def flatten_figures(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (name, value) of each number in a row of metrics except `iteration`. Slashes join nested names."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from flatten_figures(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "iteration":
            yield f"{prefix}{key}", float(value)


class Trackers:
    """Context manager that sends a run's iterations to its trackers. A failing tracker is reported once and dropped.

    Leaving the context waits up to `CLOSE_TIMEOUT` seconds per tracker, or `INTERRUPT_TIMEOUT` after an exception.
    """

    def __init__(self, names: Sequence[TrackerName], run: Path, seed: int, note: Callable[[str], None]) -> None:
        """Start a thread per tracker. `seed` draws the sample matches. `note` gets a line for each tracker that fails.

        Raises StoreError if TensorBoard's folder is a file.
        """
        self._note = note
        self._threads: dict[str, TrackerThread] = {}
        board = run / "tensorboard"
        if "tensorboard" in names and board.exists() and not board.is_dir():
            raise StoreError(f"{board} is not a folder, but TensorBoard's files belong there: move it away")
        for name in names:
            self._try(name, lambda name=name: self._threads.update({name: TrackerThread(name, run, seed)}))  # type: ignore[misc]

    def update(self) -> None:
        """Wake the trackers' threads to send newly committed iterations. Neither waits nor raises their errors."""
        for name, thread in list(self._threads.items()):
            self._try(name, thread.update)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        timeout = INTERRUPT_TIMEOUT if kind else CLOSE_TIMEOUT
        for name, thread in list(self._threads.items()):
            self._try(name, lambda thread=thread: thread.close(timeout))  # type: ignore[misc]

    def _try(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 a tracker's failure must not end the run
            self._threads.pop(name, None)
            _LOG.warning("tracker %s failed", name, exc_info=error)
            reason = printable(remove_secrets(str(error)))[:300] or type(error).__name__
            self._note(f"tracker {name} failed (the run continues without it): {reason}")
