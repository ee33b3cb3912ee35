"""A run followed from Python: what it does, its figures as they come, and a way to stop it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Task, current_task, get_running_loop
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arena.records import MatchRecord


class Progress:
    """A run that goes on: its iterations so far, and a way to stop it from anywhere.

    Give it to `arena.run(..., progress=Progress(callback))`, or the callback alone: after each committed iteration it
    is called with this object, in the thread that runs. What the callback raises ends the run and reaches the caller.
    One object is for one run.
    """

    def __init__(self, callback: Callable[[Progress], object] | None = None) -> None:
        """Without a callback it is there to be looked at, and to `cancel`."""
        self.rows: list[dict[str, Any]] = []
        """Figures of the iterations, as metrics.jsonl has them."""
        self.iterations = 0
        """How many iterations the run will have."""
        self.phase = ""
        """What it does just now."""
        self.notes: list[str] = []
        """Notices for the user, a line each."""
        self._callback, self._lock = callback, Lock()
        self._cancelled = False
        self._task: Task[Any] | None = None
        self._loop: AbstractEventLoop | None = None

    def __str__(self) -> str:
        """`iteration 3 of 20: payoff 0.41, valid 0.95`."""
        if not self.rows:
            return self.phase or "starting"
        row = self.rows[-1]
        figures = {"payoff": row.get("mean_payoff"), "valid": row.get("valid_rate")}
        said = ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if isinstance(value, int | float))
        return f"iteration {row['iteration']} of {self.iterations}" + (f": {said}" if said else "")

    @property
    def metrics(self) -> dict[str, Any]:
        """Figures of the latest iteration; empty before the first."""
        return self.rows[-1] if self.rows else {}

    @property
    def cancelled(self) -> bool:
        """Return True if it was asked to stop."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop the run: at once from another thread, after this iteration from the callback.

        Iterations that were committed are kept, and `arena.resume` goes on from them.
        """
        with self._lock:
            self._cancelled = True
            task, loop = self._task, self._loop
        if task and loop and not _is_current(loop):
            loop.call_soon_threadsafe(task.cancel)


class Followed:
    """The watcher of a run that has a `Progress` (`arena.play.watchers.Watcher`)."""

    def __init__(self, of: Progress) -> None:
        self.of = of

    def begins(self, iterations: int) -> None:
        """The run begins, in this task."""
        self.of.iterations = iterations
        with self.of._lock:
            self.of._task, self.of._loop = current_task(), get_running_loop()
        self._check()

    def ends(self) -> None:
        """The run has ended, however it did: there is nothing to cancel any more."""
        with self.of._lock:
            self.of._task = self.of._loop = None

    def phase(self, iteration: int, name: str) -> None:
        """The phase that begins; a run that was cancelled ends here."""
        self.of.phase = f"iteration {iteration}: {name}" if iteration else name
        self._check()

    def note(self, text: str) -> None:
        """Keep a notice."""
        self.of.notes.append(text)

    def match(self, record: MatchRecord) -> None:
        """Do nothing: figures come by iteration."""

    def iteration(self, row: dict[str, Any]) -> None:
        """An iteration is committed: the callback is called."""
        self.of.rows.append(row)
        if self.of._callback is not None:
            self.of._callback(self.of)
        self._check()

    def _check(self) -> None:
        if self.of.cancelled:
            raise CancelledError


def _is_current(loop: AbstractEventLoop) -> bool:
    try:
        return get_running_loop() is loop
    except RuntimeError:
        return False
