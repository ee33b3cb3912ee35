"""Watchdog: pings the run's processes, and reports and kills those that hang.

A stopped or deadlocked process does not answer pings. A process that waits forever inside a call still answers them, so
calls have a separate deadline.
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
    """Watched process with its unanswered calls. `on_exit` is called if a ping fails because the process has ended."""

    def __init__(
        self, name: str, ping: Callable[[], Awaitable[Any]], kill: Callable[[], None], on_exit: Callable[[], None]
    ) -> None:
        self.name, self.ping, self.kill, self.on_exit = name, ping, kill, on_exit
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
        """Return the label and age in seconds of the oldest unanswered call; "" and 0 if there is none."""
        label, start = min(self._calls.values(), key=lambda call: call[1], default=("", monotonic()))
        return label, monotonic() - start

    def stop(self) -> None:
        """Stop watching the process, without killing it."""
        if self.task is not None:
            self.task.cancel()


class Watchdog:
    """Watchdog of a run's processes. `note` gets a message about each hung process."""

    def __init__(self, note: Callable[[str], None], patience: float, deadline: float) -> None:
        """Set the limits in seconds: `patience` until a ping is answered, and `deadline` until a call returns."""
        self.note, self.patience, self.deadline = note, patience, deadline
        self._all: set[WatchedProcess] = set()

    def watch(
        self,
        name: str,
        ping: Callable[[], Awaitable[Any]],
        kill: Callable[[], None],
        on_exit: Callable[[], None] = lambda: None,
    ) -> WatchedProcess:
        """Start pinging a process in a task, and return the handle in which its calls are registered.

        A hung process is reported and killed with `kill`, so that its unanswered calls fail. `on_exit` is called if a
        ping raises.
        """
        process = WatchedProcess(name, ping, kill, on_exit)
        process.task = asyncio.get_running_loop().create_task(self._follow(process))
        self._all.add(process)
        process.task.add_done_callback(lambda _: self._all.discard(process))
        return process

    async def close(self) -> None:
        """Stop watching all processes, without killing them."""
        tasks = [process.task for process in self._all if process.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, process: WatchedProcess) -> None:
        warned = False
        while True:
            await asyncio.sleep(self.patience / PINGS)
            try:
                async with asyncio.timeout(self.patience):
                    await process.ping()
            except TimeoutError:
                self._kill(process, f"did not answer a ping for {self.patience:g} s")
                return
            except Exception:  # noqa: BLE001 the process is gone
                process.on_exit()
                return
            label, seconds = process.oldest_call()
            if seconds >= self.deadline:
                self._kill(process, f"did not answer a call for {seconds:.0f} s (scale.deadline)")
                return
            if seconds >= self.deadline / 2 and not warned:
                self.note(f"{process.name} is still in {label} after {seconds:.0f} s; the limit is {self.deadline:g} s")
            warned = seconds >= self.deadline / 2

    def _kill(self, process: WatchedProcess, reason: str) -> None:
        label, seconds = process.oldest_call()
        activity = f", in {label} for {seconds:.0f} s" if label else ""
        self.note(f"{process.name} {reason}{activity}: killing it")
        with suppress(Exception):
            process.kill()
