"""Who follows a run: what they hear, and what some of them want to hear besides."""

import logging
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from arena.play.match import MatchPlan
from arena.records import MatchRecord, Turn

_LOG = logging.getLogger(__name__)


class Watcher(Protocol):
    """Somebody who follows a run."""

    def phase(self, iteration: int, name: str) -> None:
        """The run now does this."""

    def note(self, text: str) -> None:
        """Something the user should hear, in one line."""

    def match(self, record: MatchRecord) -> None:
        """A match ended, well or badly."""

    def iteration(self, row: dict[str, Any]) -> None:
        """An iteration is complete; `row` is its line of metrics."""


@runtime_checkable
class TurnWatcher(Protocol):
    """A watcher who also wants every turn, as a live viewer does."""

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """A turn was taken; what it earns may still grow. See `arena.play.match.OnTurn`."""


@runtime_checkable
class ProgressWatcher(Protocol):
    """A watcher who also wants to hear how far the present phase is, where that takes long."""

    def progress(self, done: int, total: int) -> None:
        """So much of the phase is done."""


class Logged:
    """Whoever follows a run, and beside them the log, which hears of all but the turns."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
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
        """Hands on."""
        _LOG.info("note: %s", text)
        self.watcher.note(text)

    def match(self, record: MatchRecord) -> None:
        """Hands on."""
        _LOG.debug("match %s %s", record.id, record.status)
        self.watcher.match(record)

    def iteration(self, row: dict[str, Any]) -> None:
        """Hands on."""
        self.end()
        _LOG.info("iteration %d is complete", row["iteration"])
        self.watcher.iteration(row)

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """Hands on, where it is wanted."""
        if isinstance(self.watcher, TurnWatcher):
            self.watcher.turn(plan, turn)

    def progress(self, done: int, total: int) -> None:
        """Hands on, where it is wanted."""
        if isinstance(self.watcher, ProgressWatcher):
            self.watcher.progress(done, total)
