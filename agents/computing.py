"""The computing thread: one thread for torch beside the event loop, which stays responsive.

Decoding, scoring and learning run there in the order of their requests, so results do not depend on the clock and torch
keeps one team of OpenMP threads. A second thread that used torch would get a team of its own. GNU's OpenMP then counts
more threads than processors and hardly spins at barriers: a learning step takes 1.3 times as long, a decoding step
twice. A thread that submits work therefore ends any team of its own.
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

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_THREAD = ThreadPoolExecutor(1, "arena-computing")


async def compute(work: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """Run `work` in the computing thread after all earlier work; return its result or raise its error.

    Cancelling the waiting task interrupts the work at its next line of Python, like Ctrl-C. Work must not call
    `compute` and wait: this would deadlock.
    """
    job = Job(lambda: work(*args, **kwargs))
    _end_openmp_team()
    try:
        return await asyncio.wrap_future(_THREAD.submit(job.run))
    except asyncio.CancelledError:
        job.interrupt()
        raise


def _end_openmp_team() -> None:
    """End the calling thread's OpenMP team, if any; the thread creates a new one when it needs it."""
    if "torch" in sys.modules and (pause := _find_pause()) is not None:
        pause(_SOFT)


_SOFT = 1
"""Value of `omp_pause_soft` in OpenMP 5."""


@cache
def _find_pause() -> Any:
    """Return `omp_pause_resource_all` of torch's OpenMP library, or None. (faiss has an OpenMP of its own.)"""
    import torch

    with suppress(OSError, AttributeError):
        return ctypes.CDLL(torch._C.__file__).omp_pause_resource_all
    return None


class _Interrupt(BaseException):
    """Raised in the computing thread to end cancelled work."""


class Job(Generic[Result]):
    """Work for one thread that other threads can interrupt."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread: int | None = None
        """Id of the thread that is running the work."""

    def run(self) -> Result:
        """Run the work in the calling thread and return its result. Call it once."""
        with self._lock:
            self._thread = threading.get_ident()
        try:
            return self._work()
        finally:
            with self._lock:
                _raise_in_thread(self._thread, None)  # a late interrupt must not hit the next work
                self._thread = None

    def interrupt(self) -> None:
        """Raise an interrupt in the running work at its next line of Python; no effect if it is not running."""
        with self._lock:
            if self._thread is not None:
                _raise_in_thread(self._thread, _Interrupt)


def _raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    """Raise `error` in a thread at its next line of Python. None withdraws an error that has not been raised yet."""
    argument = ctypes.py_object(error) if error else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)
