"""The computing thread: one thread beside the event loop, which stays responsive.

Decoding, scoring and learning take turns there, in the order in which they are asked for: what comes of them depends on
nothing that the clock decides, and torch keeps one team of threads. A second thread that used torch would have a team
of its own; GNU's OpenMP, which then counts more threads than processors, hardly spins at barriers any more: a learning
step takes 1.3 times as long, a decoding step twice. So a thread that asks for work ends the team that it may have.
"""

import asyncio
import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Generic, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

_THREAD = ThreadPoolExecutor(1, "arena-computing")


async def compute(work: Callable[Given, Result], /, *given: Given.args, **named: Given.kwargs) -> Result:
    """Run `work` in the computing thread, after all earlier work, and return what it returns.

    Cancelling the waiting task ends the work at its next line of Python, as Ctrl-C would. Work must not wait
    for other work: it would wait for itself.
    """
    job = Job(lambda: work(*given, **named))
    _disband()
    try:
        return await asyncio.wrap_future(_THREAD.submit(job.run))
    except asyncio.CancelledError:
        job.interrupt()
        raise


def _disband() -> None:
    """End the team of OpenMP's threads that the calling thread has, if any: it makes another when it needs one."""
    if "torch" in sys.modules and (pause := _pause()) is not None:
        pause(_SOFT)


_SOFT = 1
"""`omp_pause_soft` of OpenMP 5."""


@cache
def _pause() -> Any:
    """`omp_pause_resource_all` of torch's OpenMP; None where it has none. That of faiss has teams of its own."""
    import torch

    with suppress(OSError, AttributeError):
        return ctypes.CDLL(torch._C.__file__).omp_pause_resource_all
    return None


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
