"""Steps of games that block, in threads beside the event loop, so that all other matches go on.

Each has a thread of its own that the process's end does not wait for: a step that hangs is left behind, and a thread
of a pool would be lost with it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

from agents.computing import Job
from arena.play.failures import LimitReached
from arena.process import cores
from games.slow import ELSEWHERE, Elsewhere

Result = TypeVar("Result")

AT_ONCE = min(32, cores() + 4)
"""Steps in threads at once, as many as Python's own pool of threads has."""
MOST_LEFT = 100
"""Steps that were left behind and have not ended; with more of them no further one begins."""


class Steps:
    """Takes steps off the event loop, `at_once` at a time; their slow calls are computed by `elsewhere`."""

    def __init__(self, at_once: int = AT_ONCE, elsewhere: Elsewhere | None = None) -> None:
        self._room, self._elsewhere = asyncio.Semaphore(at_once), elsewhere
        self._left: list[threading.Thread] = []

    async def take(self, step: Callable[[], None], what: str, seconds: float | None) -> None:
        """Wait for room, then for the step; LimitReached when the step takes longer than `seconds`."""
        async with self._room:
            self._left = [thread for thread in self._left if thread.is_alive()]
            if len(self._left) > MOST_LEFT:
                raise LimitReached(f"{len(self._left)} steps of games hang: no further one is begun")
            await in_time(self._in_thread(step), what, seconds)

    async def _in_thread(self, step: Callable[[], None]) -> None:
        """Run it; when nobody waits any more it ends at its next line of Python."""
        context, ended = copy_context(), Future[None]()
        context.run(ELSEWHERE.set, self._elsewhere)
        job = Job(lambda: context.run(step))

        def run() -> None:
            try:
                ended.set_result(job.run())
            except BaseException as error:  # noqa: BLE001 it is raised where the step is waited for
                ended.set_exception(error)

        ended.set_running_or_notify_cancel()
        thread = threading.Thread(target=run, name="arena-step", daemon=True)
        thread.start()
        try:
            await asyncio.wrap_future(ended)
        except asyncio.CancelledError:
            job.interrupt()
            self._left.append(thread)
            raise


async def in_time(work: Awaitable[Result], what: str, seconds: float | None) -> Result:
    """Return what the work does; LimitReached when it takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds) as watch:
            return await work
    except TimeoutError:
        if watch.expired():
            raise LimitReached(f"turn time limit: {what} took over {seconds:g} s") from None
        raise


_CHOSEN: ContextVar[Steps | None] = ContextVar("steps", default=None)
_USUAL: WeakKeyDictionary[asyncio.AbstractEventLoop, Steps] = WeakKeyDictionary()


@contextmanager
def stepping(steps: Steps) -> Iterator[None]:
    """Have all matches that are begun inside step by these."""
    token = _CHOSEN.set(steps)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def current() -> Steps:
    """The steps of the matches that are begun here: those chosen, or threads that a loop's matches share."""
    if chosen := _CHOSEN.get():
        return chosen
    loop = asyncio.get_running_loop()
    if loop not in _USUAL:
        _USUAL[loop] = Steps()
    return _USUAL[loop]
