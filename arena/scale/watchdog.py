"""The watchdog: pings the run's processes, says which one hangs in what, and ends it.

A process that is stopped, or deadlocked with its interpreter, gives no sign of life; one that waits for ever in a call
answers pings: such a call has a deadline of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from time import monotonic
from typing import Any

PINGS = 4
"""Pings within the time after which a process counts as hung."""


class Watched:
    """A process under watch, and the calls that it has not answered."""

    def __init__(
        self, name: str, ping: Callable[[], Awaitable[Any]], kill: Callable[[], None], gone: Callable[[], None]
    ) -> None:
        self.name, self.ping, self.kill, self.gone = name, ping, kill, gone
        self.task: asyncio.Task[None] | None = None
        self._numbers = count()
        self._calls: dict[int, tuple[str, float]] = {}

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """A call goes on within the context."""
        number = next(self._numbers)
        self._calls[number] = what, monotonic()
        try:
            yield
        finally:
            del self._calls[number]

    def longest(self) -> tuple[str, float]:
        """The call that has waited longest, and for how many seconds; empty and 0 where there is none."""
        what, since = min(self._calls.values(), key=lambda call: call[1], default=("", monotonic()))
        return what, monotonic() - since

    def stop(self) -> None:
        """Watch it no more."""
        if self.task is not None:
            self.task.cancel()


class Watchdog:
    """A watch over the processes of one run."""

    def __init__(self, note: Callable[[str], None], patience: float, deadline: float) -> None:
        """`patience`: seconds without a sign of life, `deadline`: of one call, after which a process is ended."""
        self.note, self.patience, self.deadline = note, patience, deadline
        self._all: set[Watched] = set()

    def watch(
        self,
        name: str,
        ping: Callable[[], Awaitable[Any]],
        kill: Callable[[], None],
        gone: Callable[[], None] = lambda: None,
    ) -> Watched:
        """Watch a process until it is killed, which makes its waiting calls fail, or answers pings with an error.

        Then it is `gone`.
        """
        watched = Watched(name, ping, kill, gone)
        watched.task = asyncio.get_running_loop().create_task(self._follow(watched))
        self._all.add(watched)
        watched.task.add_done_callback(lambda _: self._all.discard(watched))
        return watched

    async def close(self) -> None:
        """Watch nothing any more."""
        tasks = [watched.task for watched in self._all if watched.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, watched: Watched) -> None:
        warned = False
        while True:
            await asyncio.sleep(self.patience / PINGS)
            try:
                async with asyncio.timeout(self.patience):
                    await watched.ping()
            except TimeoutError:
                self._end(watched, f"gives no sign of life for {self.patience:g} s")
                return
            except Exception:  # noqa: BLE001 it is gone
                watched.gone()
                return
            what, waited = watched.longest()
            if waited >= self.deadline:
                self._end(watched, f"does not answer for {waited:.0f} s (scale.deadline)")
                return
            if waited >= self.deadline / 2 and not warned:
                self.note(f"{watched.name} is at {what} for {waited:.0f} s, and is ended after {self.deadline:g} s")
            warned = waited >= self.deadline / 2

    def _end(self, watched: Watched, why: str) -> None:
        what, waited = watched.longest()
        doing = f", in {what} for {waited:.0f} s" if what else ""
        self.note(f"{watched.name} {why}{doing}: it is ended")
        with suppress(Exception):
            watched.kill()
