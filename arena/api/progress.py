"""Progress of a run in Python: its phase, metrics and notices, and its cancellation."""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Task, current_task, get_running_loop
from collections.abc import Callable
from threading import Lock
from typing import Any

from arena.play.watchers import Watcher


class Progress:
    """State of a running experiment, which can be cancelled from any thread.

    Use it as `arena.run(..., progress=Progress(callback))`, or pass only the callback. The callback is called with this
    object after each committed iteration, in the run's thread. An exception in it ends the run and is raised to the
    caller. Use one object per run.
    """

    def __init__(self, callback: Callable[[Progress], object] | None = None) -> None:
        """Create the state of a run that has not started. `callback` is called after each committed iteration."""
        self.rows: list[dict[str, Any]] = []
        """Metrics of each iteration, as in metrics.jsonl."""
        self.iterations = 0
        """Total number of iterations of the run."""
        self.phase = ""
        """Current phase, such as `iteration 3: learn`."""
        self.notes: list[str] = []
        """Notices for the user, one line each."""
        self._callback, self._lock = callback, Lock()
        self._cancelled = False
        self._task: Task[Any] | None = None
        self._loop: AbstractEventLoop | None = None

    def __str__(self) -> str:
        """Return a status line such as `iteration 3 of 20: payoff 0.41, valid 0.95`, or the phase before the first."""
        if not self.rows:
            return self.phase or "starting"
        row = self.rows[-1]
        figures = {"payoff": row.get("mean_payoff"), "valid": row.get("valid_rate")}
        text = ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if isinstance(value, int | float))
        return f"iteration {row['iteration']} of {self.iterations}" + (f": {text}" if text else "")

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the latest iteration, as in metrics.jsonl; empty before the first."""
        return self.rows[-1] if self.rows else {}

    @property
    def cancelled(self) -> bool:
        """True once `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the run: at once if called in another thread, after the current iteration if called in the callback.

        Committed iterations are kept: `arena.run` returns them as its result, and `arena.resume` continues from them.
        """
        with self._lock:
            self._cancelled = True
            task, loop = self._task, self._loop
        if task and loop and not _is_current(loop):
            loop.call_soon_threadsafe(task.cancel)


class ProgressWatcher(Watcher):
    """Watcher that records a run's events in a `Progress` and ends a cancelled run."""

    def __init__(self, state: Progress) -> None:
        self.state = state

    def begins(self, iterations: int) -> None:
        """Store the number of iterations, and the current asyncio task for `Progress.cancel`.

        Raises CancelledError if the run was cancelled before it began.
        """
        self.state.iterations = iterations
        with self.state._lock:
            self.state._task, self.state._loop = current_task(), get_running_loop()
        self._check()

    def ends(self) -> None:
        """Drop the run's asyncio task and loop, so that `Progress.cancel` has no more effect on them."""
        with self.state._lock:
            self.state._task = self.state._loop = None

    def phase(self, iteration: int, name: str) -> None:
        """Store the current phase; iteration 0 is before the first. Raises CancelledError if the run was cancelled."""
        self.state.phase = f"iteration {iteration}: {name}" if iteration else name
        self._check()

    def note(self, text: str) -> None:
        """Add a notice to `Progress.notes`."""
        self.state.notes.append(text)

    def iteration(self, row: dict[str, Any]) -> None:
        """Store a committed iteration's metrics and call the user's callback.

        Raises CancelledError if the run was cancelled, and whatever the callback raises.
        """
        self.state.rows.append(row)
        if self.state._callback is not None:
            self.state._callback(self.state)
        self._check()

    def _check(self) -> None:
        if self.state.cancelled:
            raise CancelledError


def _is_current(loop: AbstractEventLoop) -> bool:
    try:
        return get_running_loop() is loop
    except RuntimeError:
        return False
