"""The event loop that engines live in: one for the process, however often it is waited on."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
_RUNNER = asyncio.Runner()


def wait(work: Coroutine[Any, Any, Result], by_signal: bool = True) -> Result:
    """Run the loop until this is done; inside of the loop, await instead.

    Ctrl-C ends the work; without `by_signal` that is left to whatever the work itself waits on, such as a prompt.
    Work that fails or is interrupted leaves no task behind, while those of others, such as an engine's, live on.
    Where another loop runs already, as in a notebook, ours runs in a thread beside it; an interrupt then waits for it.
    """
    if _within_another():
        with ThreadPoolExecutor(1, "arena-loop") as beside:
            return beside.submit(lambda: wait(work, by_signal=False)).result()
    with closing(work):  # interrupted before it began, it would complain on stderr that nobody awaited it
        others = asyncio.all_tasks(_RUNNER.get_loop())
        try:
            return _RUNNER.run(work) if by_signal else _RUNNER.get_loop().run_until_complete(work)
        except BaseException:
            _cancel(asyncio.all_tasks(_RUNNER.get_loop()) - others)
            raise


def _within_another() -> bool:
    """Return True if this thread runs a loop that is not ours; inside ours it is a mistake, which asyncio reports."""
    try:
        return asyncio.get_running_loop() is not _RUNNER.get_loop()
    except RuntimeError:
        return False


def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """End these tasks, whatever they raise while they end."""
    for task in tasks:
        task.cancel()
    while pending := {task for task in tasks if not task.done()}:
        with suppress(KeyboardInterrupt, SystemExit):
            _RUNNER.get_loop().run_until_complete(asyncio.wait(pending))
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that nobody complains of it
