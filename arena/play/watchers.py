"""Who follows a run: what they hear, and what some of them want to hear besides."""

from typing import Any, Protocol, runtime_checkable

from arena.play.match import MatchPlan
from arena.records import MatchRecord, Turn


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
