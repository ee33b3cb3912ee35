"""Watchers: the callbacks by which live views and logs follow a run."""

import logging
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from arena.play.feed import Feed
from arena.play.match import MatchPlan
from arena.records import MatchRecord, Turn

_LOG = logging.getLogger(__name__)


class Watcher(Protocol):
    """Callbacks of a run."""

    def phase(self, iteration: int, name: str) -> None:
        """Report the phase that begins."""

    def note(self, text: str) -> None:
        """Report a notice for the user, in one line."""

    def match(self, record: MatchRecord) -> None:
        """Report a match that ended, finished or failed."""

    def iteration(self, row: dict[str, Any]) -> None:
        """Report a complete iteration; `row` is its line of metrics."""


@runtime_checkable
class TurnWatcher(Protocol):
    """A watcher that also follows every turn, as a live viewer does."""

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Report a turn; its rewards may still grow. See `arena.play.match.OnTurn`."""


@runtime_checkable
class ProgressWatcher(Protocol):
    """A watcher that also follows the progress of long phases."""

    def progress(self, done: int, total: int) -> None:
        """Report how much of the phase is done."""


class Logged:
    """A watcher together with the run's log, which gets everything but the turns, and its feed, which gets those."""

    def __init__(self, watcher: Watcher, feed: Feed | None = None) -> None:
        self.watcher, self.feed = watcher, feed
        self._phase, self._since = "", monotonic()

    def phase(self, iteration: int, name: str) -> None:
        """The phase before has ended, this one begins."""
        self.end()
        self._phase, self._since = f"iteration {iteration}: {name}" if iteration else name, monotonic()
        _LOG.info("%s begins", self._phase)
        self.watcher.phase(iteration, name)

    def end(self) -> None:
        """The phase has ended, and none begins."""
        if self._phase:
            _LOG.info("%s ends after %.1f s", self._phase, monotonic() - self._since)
        self._phase = ""

    def note(self, text: str) -> None:
        """Forward to the watcher."""
        _LOG.info("note: %s", text)
        self.watcher.note(text)

    def match(self, record: MatchRecord) -> None:
        """Forward to the watcher."""
        _LOG.debug("match %s %s", record.id, record.status)
        if self.feed:
            self.feed.ended(record.id)
        self.watcher.match(record)

    def iteration(self, row: dict[str, Any]) -> None:
        """Forward to the watcher."""
        self.end()
        _LOG.info("iteration %d is complete", row["iteration"])
        if self.feed:
            self.feed.committed(row["iteration"])
        self.watcher.iteration(row)

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Forward to the watcher, if it follows this."""
        if self.feed:
            self.feed.turn(plan, turn)
        if isinstance(self.watcher, TurnWatcher):
            self.watcher.turn(plan, turn)

    def progress(self, done: int, total: int) -> None:
        """Forward to the watcher, if it follows this."""
        if isinstance(self.watcher, ProgressWatcher):
            self.watcher.progress(done, total)
