"""All trackers of a run; what goes wrong with one is said once, and the run goes on without it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from arena.plain import printable, without_secrets
from arena.store.run import RunFolder
from arena.trackers.base import figures_of
from arena.trackers.board import Board
from arena.trackers.outside import Outside
from arena.trackers.samples import samples
from arena.trackers.settings import TrackerName

_LOG = logging.getLogger(__name__)


class _InProcess:
    """TensorBoard, which is quick and at hand: what it shows is read from the log that was just sealed."""

    def __init__(self, run: RunFolder, seed: int, done: int) -> None:
        self.run, self.seed, self.board = run, seed, Board(run.tensorboard, done)

    def add(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics."""
        k = row["iteration"]
        self.board.log(k, dict(figures_of(row)), samples(self.run.reader.log, k, self.seed))

    def close(self, interrupted: bool) -> None:
        """Close the event file."""
        self.board.close()


class Trackers:
    """A context in which a run's rows are shown."""

    def __init__(
        self, names: Sequence[TrackerName], run: RunFolder, seed: int, done: int, note: Callable[[str], None]
    ) -> None:
        """StoreError where TensorBoard's folder is none; `note` is called with all else that goes wrong."""
        self._note = note
        self._trackers: dict[str, _InProcess | Outside] = {}
        for name in names:
            if name == "tensorboard":
                self._trackers[name] = _InProcess(run, seed, done)
            else:
                self._try(name, partial(self._begin, name, run, seed))

    def add(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics; never raises and never waits for others."""
        for name, tracker in list(self._trackers.items()):
            self._try(name, partial(tracker.add, row))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name, tracker in list(self._trackers.items()):
            self._try(name, partial(tracker.close, interrupted=kind is not None))

    def _begin(self, name: str, run: RunFolder, seed: int) -> None:
        self._trackers[name] = Outside(name, run.path, seed)

    def _try(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 others' code and full disks: the run has its own record
            self._trackers.pop(name, None)
            _LOG.warning("tracker %s failed", name, exc_info=error)
            why = printable(without_secrets(str(error))) or type(error).__name__
            self._note(f"tracker {name} (the run does without): {why}")
