"""The computing thread: one thread beside the event loop, which stays responsive.

Decoding, scoring and learning take turns there, in the order in which they are asked for: what comes of them depends on
nothing that the clock decides, and torch keeps one team of threads. A second thread that used torch would have a team
of its own; GNU's OpenMP, which then counts more threads than processors, hardly spins at barriers any more, and a
learning step takes 1.3 times as long.
"""

import asyncio
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

_THREAD = ThreadPoolExecutor(1, "arena-computing")


async def compute(work: Callable[Given, Result], /, *given: Given.args, **named: Given.kwargs) -> Result:
    """Run `work` in the computing thread, after all earlier work, and return what it returns.

    Cancelling the waiting task ends the work at its next line of Python, as Ctrl-C would. Work must not wait
    for other work: it would wait for itself.
    """
    job = Job(lambda: work(*given, **named))
    try:
        return await asyncio.wrap_future(_THREAD.submit(job.run))
    except asyncio.CancelledError:
        job.interrupt()
        raise


class _Interrupt(BaseException):
    """Ends work that nobody waits for any more."""


class Job(Generic[Result]):
    """Work that can be ended while it runs."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread: int | None = None
        """Id of the thread that runs it just now."""

    def run(self) -> Result:
        """Do the work in this thread; once."""
        with self._lock:
            self._thread = threading.get_ident()
        try:
            return self._work()
        finally:
            with self._lock:
                _raise_in(self._thread, None)  # what has not arrived by now must not reach the next work
                self._thread = None

    def interrupt(self) -> None:
        """End the work at its next line of Python, where it runs."""
        with self._lock:
            if self._thread is not None:
                _raise_in(self._thread, _Interrupt)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise this at its next line of Python; None takes back what has not arrived."""
    what = ctypes.py_object(error) if error else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
