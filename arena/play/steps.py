"""Threads for the steps of games that block, so that the event loop keeps serving other matches.

Each step has its own daemon thread, which the end of the process does not wait for. A step that hangs is abandoned;
in a thread pool it would occupy a worker forever.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from agents.computing import Job
from arena.play.failures import LimitReached
from arena.process import count_cores
from games.abilities import Blocking, Waiting
from games.slow import EXECUTOR, Executor

Result = TypeVar("Result")
RunStep = Callable[[Callable[[], None], str, float | None], Awaitable[None]]
"""Function (step, label, seconds) that runs a game's step within a timeout; `label` names the step in messages."""

MAX_COMPUTING = min(32, count_cores() + 4)
"""Maximum concurrent steps that compute: as many as Python's default thread pool has workers."""
MAX_WAITING = 64
"""Maximum concurrent steps that only wait for tools. Each tool also limits its calls, by default to 8 at a time.

So the last of 64 matches waits for 8 rounds of calls: at the default timeout of 10 s at most 80 s, less than the limit
of a turn, 120 s.
"""
MAX_ABANDONED = 100
"""Maximum abandoned steps that have not ended. With more of them no further step starts."""


class StepRunner:
    """Runner of blocking game steps in threads, `at_once` at a time. `executor` runs the slow calls within steps.

    Steps that only wait do not count towards `at_once`; up to `MAX_WAITING` of them run at a time.
    """

    def __init__(self, at_once: int = MAX_COMPUTING, executor: Executor | None = None) -> None:
        self._slots, self._executor = (
            {False: asyncio.Semaphore(at_once), True: asyncio.Semaphore(MAX_WAITING)},
            executor,
        )
        self._abandoned: list[threading.Thread] = []

    async def run(self, step: Callable[[], None], label: str, seconds: float | None, waits: bool = False) -> None:
        """Run a step in a thread when one is free. Raises LimitReached after `seconds`, or if too many steps hang."""
        async with self._slots[waits]:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            if len(self._abandoned) > MAX_ABANDONED:
                raise LimitReached(f"{len(self._abandoned)} steps of games hang: no further step starts")
            await limit_time(self._in_thread(step), label, seconds)

    async def _in_thread(self, step: Callable[[], None]) -> None:
        """Run the step in a new thread and wait for it. If cancelled, interrupt the step at its next line of Python."""
        context, end = copy_context(), Future[None]()
        context.run(EXECUTOR.set, self._executor)
        job = Job(lambda: context.run(step))

        def run() -> None:
            try:
                end.set_result(job.run())
            except BaseException as error:  # noqa: BLE001 raised in the waiting task
                end.set_exception(error)

        end.set_running_or_notify_cancel()
        thread = threading.Thread(target=run, name="arena-step", daemon=True)
        thread.start()
        try:
            await asyncio.wrap_future(end)
        except asyncio.CancelledError:
            job.interrupt()
            self._abandoned.append(thread)
            raise


async def limit_time(work: Awaitable[Result], label: str, seconds: float | None) -> Result:
    """Await `work` and return its result. Raises LimitReached, naming `label`, after `seconds` (None: no limit)."""
    try:
        async with asyncio.timeout(seconds) as watch:
            return await work
    except TimeoutError:
        if watch.expired():
            raise LimitReached(f"turn time limit: {label} took over {seconds:g} s") from None
        raise


_CHOSEN_RUNNER: ContextVar[StepRunner | None] = ContextVar("steps", default=None)
_DEFAULT_RUNNERS: WeakKeyDictionary[asyncio.AbstractEventLoop, StepRunner] = WeakKeyDictionary()


@contextmanager
def use_step_runner(runner: StepRunner) -> Iterator[None]:
    """Use `runner` for the blocking steps of all matches that start within the context."""
    token = _CHOSEN_RUNNER.set(runner)
    try:
        yield
    finally:
        _CHOSEN_RUNNER.reset(token)


def get_run_step(game: object) -> RunStep | None:
    """Return the function that runs this game's steps in threads; None if its steps do not block."""
    if not (isinstance(game, Blocking) and game.blocks):
        return None
    return partial(get_step_runner().run, waits=isinstance(game, Waiting) and game.waits)


def get_step_runner() -> StepRunner:
    """Return the step runner chosen by `use_step_runner`, or else the default one of the running event loop."""
    if runner := _CHOSEN_RUNNER.get():
        return runner
    loop = asyncio.get_running_loop()
    if loop not in _DEFAULT_RUNNERS:
        _DEFAULT_RUNNERS[loop] = StepRunner()
    return _DEFAULT_RUNNERS[loop]
