"""Watchdog: pings the run's processes, reports which one hangs in which call, and kills it.

A stopped or deadlocked process does not answer pings. A process that waits forever in a call does, so calls have a
deadline of their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from time import monotonic
from typing import Any

PINGS = 4
"""Number of pings within `patience`."""


class WatchedProcess:
    """A watched process with its unanswered calls. `gone` is called if the process has ended."""

    def __init__(
        self, name: str, ping: Callable[[], Awaitable[Any]], kill: Callable[[], None], gone: Callable[[], None]
    ) -> None:
        self.name, self.ping, self.kill, self.gone = name, ping, kill, gone
        self.task: asyncio.Task[None] | None = None
        self._numbers = count()
        self._calls: dict[int, tuple[str, float]] = {}

    @contextmanager
    def register_call(self, label: str) -> Iterator[None]:
        """Register a call to the process, named `label`, as unanswered for the duration of the block."""
        number = next(self._numbers)
        self._calls[number] = label, monotonic()
        try:
            yield
        finally:
            del self._calls[number]

    def oldest_call(self) -> tuple[str, float]:
        """Return the label and waiting seconds of the oldest unanswered call; "" and 0 if there is none."""
        label, since = min(self._calls.values(), key=lambda call: call[1], default=("", monotonic()))
        return label, monotonic() - since

    def stop(self) -> None:
        """Stop watching the process, without killing it."""
        if self.task is not None:
            self.task.cancel()


class Watchdog:
    """Pings a run's processes and kills those that hang; `note` gets a message about each."""

    def __init__(self, note: Callable[[str], None], patience: float, deadline: float) -> None:
        """Set the limits: seconds without an answer to a ping (`patience`), and seconds in a call (`deadline`)."""
        self.note, self.patience, self.deadline = note, patience, deadline
        self._all: set[WatchedProcess] = set()

    def watch(
        self,
        name: str,
        ping: Callable[[], Awaitable[Any]],
        kill: Callable[[], None],
        gone: Callable[[], None] = lambda: None,
    ) -> WatchedProcess:
        """Start pinging a process in a task, and return its handle, in which calls are registered.

        A hung process is reported and killed by `kill`, which makes its waiting calls fail. `gone` is called if a ping
        raises.
        """
        watched = WatchedProcess(name, ping, kill, gone)
        watched.task = asyncio.get_running_loop().create_task(self._follow(watched))
        self._all.add(watched)
        watched.task.add_done_callback(lambda _: self._all.discard(watched))
        return watched

    async def close(self) -> None:
        """Stop watching all processes, without killing them."""
        tasks = [watched.task for watched in self._all if watched.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, watched: WatchedProcess) -> None:
        warned = False
        while True:
            await asyncio.sleep(self.patience / PINGS)
            try:
                async with asyncio.timeout(self.patience):
                    await watched.ping()
            except TimeoutError:
                self._kill(watched, f"gives no sign of life for {self.patience:g} s")
                return
            except Exception:  # noqa: BLE001 it is gone
                watched.gone()
                return
            what, waited = watched.oldest_call()
            if waited >= self.deadline:
                self._kill(watched, f"does not answer for {waited:.0f} s (scale.deadline)")
                return
            if waited >= self.deadline / 2 and not warned:
                self.note(f"{watched.name} is at {what} for {waited:.0f} s, and is ended after {self.deadline:g} s")
            warned = waited >= self.deadline / 2

    def _kill(self, watched: WatchedProcess, why: str) -> None:
        what, waited = watched.oldest_call()
        doing = f", in {what} for {waited:.0f} s" if what else ""
        self.note(f"{watched.name} {why}{doing}: it is ended")
        with suppress(Exception):
            watched.kill()
