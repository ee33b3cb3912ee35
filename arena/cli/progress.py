"""Progress of a command with its remaining time: a bar in a terminal, a line every 30 seconds elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from arena.cli.console import PlainConsole, note
from arena.errors import Interrupted

REPORT_INTERVAL = 30.0
"""Seconds between two progress lines without a terminal."""


def format_remaining(done: int, total: int, seconds: float) -> str:
    """Return the remaining time, `about 4 min left`, if `done` of `total` steps took `seconds`; "" if unknown."""
    if not 0 < done < total:
        return ""
    return f"about {format_duration(seconds * (total - done) / done)} left"


def format_duration(seconds: float) -> str:
    """Return a duration as rounded text: 40 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Pace:
    """Count of finished steps, with an estimate of the remaining time."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, total, 0
        self._started = self._last_report = monotonic()

    def __str__(self) -> str:
        """Return a line such as `matches: 120 of 800, about 4 min left`."""
        remaining = format_remaining(self.done, self.total, monotonic() - self._started)
        return f"{self.label}: {self.done} of {self.total}" + (f", {remaining}" if remaining else "")

    def is_due(self, done: int) -> bool:
        """Record the number of finished steps, and return True if a report is due, every `REPORT_INTERVAL` seconds."""
        self.done, now = done, monotonic()
        if now - self._last_report < REPORT_INTERVAL:
            return False
        self._last_report = now
        return True


@contextmanager
def progress(
    total: int, quiet: bool, status: Callable[[], str] = str, label: str = "matches"
) -> Iterator[Callable[[], None]]:
    """Show progress on stderr within the context; yield a function that counts one more step.

    `status` returns a text beside the bar. Turns Ctrl-C into Interrupted.
    """
    from asyncio import CancelledError

    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    class StatusColumn(ProgressColumn):
        """Column with the text of `status`."""

        def render(self, task: Task) -> Text:
            return Text(status(), style="dim")

    terminal, pace = PlainConsole(stderr=True), Pace(label, total)
    columns = [*Progress.get_default_columns(), StatusColumn()]
    with Progress(*columns, console=terminal, transient=True, disable=quiet or not terminal.is_terminal) as bar:
        task = bar.add_task(label, total=total)

        def step() -> None:
            bar.advance(task)
            if pace.is_due(pace.done + 1) and not quiet and not terminal.is_terminal:
                note(str(pace))

        try:
            yield step
        except (KeyboardInterrupt, CancelledError):  # Ctrl-C outside and inside of the event loop
            raise Interrupted("interrupted; nothing was written") from None
