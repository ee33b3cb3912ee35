"""Watchers: callbacks for live views and logs of a run."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.play.feed import Feed
    from arena.play.match import MatchPlan
    from arena.records import MatchRecord, Turn

_LOG = logging.getLogger(__name__)


class Watcher:
    """Base class of live views and logs, whose methods are called at the events of a run. Most do nothing."""

    def phase(self, iteration: int, name: str) -> None:
        """Show that the phase `name` begins. `iteration` is 0 outside of iterations."""

    def note(self, text: str) -> None:
        """Show a one-line notice to the user."""

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Show a new turn with its rewards so far. The turn may get further rewards later."""

    def match(self, record: MatchRecord) -> None:
        """Show or count a match that has ended, finished or failed."""

    def progress(self, done: int, total: int) -> None:
        """Show that `done` of `total` steps of a long phase are done."""

    def iteration(self, row: dict[str, Any]) -> None:
        """Show a complete iteration. `row` has its metrics."""

    def stage(self, label: str, name: str, iterations: int) -> None:
        """Show that a pipeline's stage starts or resumes, to which later events belong; by default as a phase.

        `label` is such as `stage 2 of 3, NAME`; 0 `iterations` are an unknown number.
        """
        self.phase(0, label)


class LoggingWatcher(Watcher):
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
        """Add a turn to the feed and forward it."""
        if self.feed:
            self.feed.add_turn(plan, turn)
        self.watcher.turn(plan, turn)

    def progress(self, done: int, total: int) -> None:
        """Forward the progress of a phase."""
        self.watcher.progress(done, total)
