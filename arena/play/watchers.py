"""Watchers: callbacks for live views and logs of a run."""

import logging
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from arena.play.feed import Feed
from arena.play.match import MatchPlan
from arena.records import MatchRecord, Turn

_LOG = logging.getLogger(__name__)


class Watcher(Protocol):
    """Interface of a live view or log, whose methods are called at the events of a run."""

    def phase(self, iteration: int, name: str) -> None:
        """Show that the phase `name` begins. `iteration` is 0 outside of iterations."""

    def note(self, text: str) -> None:
        """Show a one-line notice to the user."""

    def match(self, record: MatchRecord) -> None:
        """Show or count a match that has ended, finished or failed."""

    def iteration(self, row: dict[str, Any]) -> None:
        """Show a complete iteration. `row` has its metrics."""


@runtime_checkable
class TurnWatcher(Protocol):
    """Watcher that is also called with every turn, such as a live viewer."""

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Show a new turn with its rewards so far. The turn may get further rewards later."""


@runtime_checkable
class ProgressWatcher(Protocol):
    """Watcher that is also called with the progress of long phases."""

    def progress(self, done: int, total: int) -> None:
        """Show that `done` of `total` steps of the phase are done."""


@runtime_checkable
class StageWatcher(Protocol):
    """Watcher that is also called when a stage of a pipeline starts or resumes."""

    def stage(self, label: str, name: str, iterations: int) -> None:
        """Show that later events belong to a stage. `label` is such as `stage 2 of 3, NAME`; 0 iterations: unknown."""


class LoggingWatcher:
    """Watcher that writes events to the run's log and turns to its feed, and forwards both to another watcher."""

    def __init__(self, watcher: Watcher, feed: Feed | None = None) -> None:
        self.watcher, self.feed = watcher, feed
        self._phase, self._since = "", monotonic()

    def phase(self, iteration: int, name: str) -> None:
        """Log the end of the previous phase and the start of this one, and forward it."""
        self.end()
        self._phase, self._since = f"iteration {iteration}: {name}" if iteration else name, monotonic()
        _LOG.info("%s begins", self._phase)
        self.watcher.phase(iteration, name)

    def end(self) -> None:
        """Log the end of the current phase with its seconds, if there is one."""
        if self._phase:
            _LOG.info("%s ends after %.1f s", self._phase, monotonic() - self._since)
        self._phase = ""

    def note(self, text: str) -> None:
        """Log a one-line notice for the user and forward it."""
        _LOG.info("note: %s", text)
        self.watcher.note(text)

    def match(self, record: MatchRecord) -> None:
        """Log and forward the end of a match, and remove it from the feed."""
        _LOG.debug("match %s %s", record.id, record.status)
        if self.feed:
            self.feed.end_match(record.id)
        self.watcher.match(record)

    def iteration(self, row: dict[str, Any]) -> None:
        """Log the end of the phase and of the iteration, remove its matches from the feed, and forward the metrics."""
        self.end()
        _LOG.info("iteration %d is complete", row["iteration"])
        if self.feed:
            self.feed.end_iteration(row["iteration"])
        self.watcher.iteration(row)

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Add a turn to the feed, and forward it if the other watcher is a TurnWatcher."""
        if self.feed:
            self.feed.add_turn(plan, turn)
        if isinstance(self.watcher, TurnWatcher):
            self.watcher.turn(plan, turn)

    def progress(self, done: int, total: int) -> None:
        """Forward the progress of a phase if the other watcher is a ProgressWatcher."""
        if isinstance(self.watcher, ProgressWatcher):
            self.watcher.progress(done, total)
