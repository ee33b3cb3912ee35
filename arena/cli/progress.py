"""Progress of a command and its time left, roughly: a bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from arena.cli.console import PlainConsole, note
from arena.errors import Interrupted

EVERY = 30.0
"""Seconds between two lines where there is no terminal."""


def left(done: int, total: int, seconds: float) -> str:
    """Return the time left, estimated from `done` of `total` in so many seconds: `about 4 min left`; else ""."""
    if not 0 < done < total:
        return ""
    rest = seconds * (total - done) / done
    return f"about {lasting(rest)} left"


def lasting(seconds: float) -> str:
    """A time to wait, rounded as one says it: 40 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Pace:
    """Counts what is done of a whole and says it in a line."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._began = self._reported = monotonic()

    def __str__(self) -> str:
        """`matches: 120 of 800, about 4 min left`."""
        rest = left(self.done, self.total, monotonic() - self._began)
        return f"{self.what}: {self.done} of {self.total}" + (f", {rest}" if rest else "")

    def due(self, done: int) -> bool:
        """Notes how much is done; whether it is time to say so again."""
        self.done, now = done, monotonic()
        if now - self._reported < EVERY:
            return False
        self._reported = now
        return True


@contextmanager
def progress(
    total: int, quiet: bool, status: Callable[[], str] = str, what: str = "matches"
) -> Iterator[Callable[[], None]]:
    """Follows the command on stderr, beside a status; the function that says that one more is done."""
    from asyncio import CancelledError

    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    class Status(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(status(), style="dim")

    terminal, pace = PlainConsole(stderr=True), Pace(what, total)
    columns = [*Progress.get_default_columns(), Status()]
    with Progress(*columns, console=terminal, transient=True, disable=quiet or not terminal.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def step() -> None:
            bar.advance(task)
            if pace.due(pace.done + 1) and not quiet and not terminal.is_terminal:
                note(str(pace))

        try:
            yield step
        except (KeyboardInterrupt, CancelledError):  # as Ctrl-C reaches us outside of the loop, and inside of it
            raise Interrupted("interrupted; nothing was written") from None
