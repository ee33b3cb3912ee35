"""The event loop of the process, in which engines run."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
_RUNNER = asyncio.Runner()


def wait(work: Coroutine[Any, Any, Result], by_signal: bool = True) -> Result:
    """Run the coroutine on the process's event loop and return its result. Inside the loop, use `await` instead.

    Ctrl-C cancels the work; without `by_signal`, code within the work, such as a prompt, has to handle it.
    If the work fails, tasks that it started are cancelled; other tasks, such as an engine's, continue. If another loop
    is running, as in a notebook, the loop runs in a thread, and an interrupt waits for it.
    """
    if _is_in_other_loop():
        with ThreadPoolExecutor(1, "arena-loop") as executor:
            return executor.submit(lambda: wait(work, by_signal=False)).result()
    with closing(work):  # avoids a warning if it is interrupted before it starts
        earlier = asyncio.all_tasks(_RUNNER.get_loop())
        try:
            return _RUNNER.run(work) if by_signal else _RUNNER.get_loop().run_until_complete(work)
        except BaseException:
            _cancel(asyncio.all_tasks(_RUNNER.get_loop()) - earlier)
            raise


def _is_in_other_loop() -> bool:
    """Return True if this thread runs another event loop. For a call inside our own loop, asyncio raises an error."""
    try:
        return asyncio.get_running_loop() is not _RUNNER.get_loop()
    except RuntimeError:
        return False


def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, wait for their end, and ignore their exceptions."""
    for task in tasks:
        task.cancel()
    while pending := {task for task in tasks if not task.done()}:
        with suppress(KeyboardInterrupt, SystemExit):
            _RUNNER.get_loop().run_until_complete(asyncio.wait(pending))
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it
