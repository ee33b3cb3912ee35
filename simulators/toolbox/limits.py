"""Limits of tool calls: timeout, retries and concurrency. A hanging call is abandoned in its thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from simulators.base import SimulatorFault
from simulators.tools import Tool

MAX_HANGING = 100
"""Number of hanging calls beyond which matches fail instead of starting more threads."""
_HANGING: list[threading.Thread] = []


class ServerEnded(Exception):
    """Raised if a tool's server ended during a call; the message is the reason."""


@dataclass(frozen=True)
class Limits:
    """Limits on the calls of one tool source."""

    timeout: float | None
    """Seconds per attempt; None for no limit."""
    retries: int
    slots: threading.Semaphore = field(repr=False)
    """Slots of concurrent calls."""

    def apply(self, tool: Tool) -> Tool:
        """Return the tool under these limits.

        A call that takes too long, or whose server ends, is retried up to `retries` times. Then it raises TimeoutError,
        or ValueError with a text for the model.
        """

        def call_limited(**arguments: Any) -> Any:
            for attempt in range(self.retries + 1):
                try:
                    return self._attempt(tool, arguments)
                except TimeoutError:
                    if attempt == self.retries:
                        raise
                except ServerEnded as ended:
                    if attempt == self.retries:
                        raise ValueError(f"{tool.name} failed: {ended}") from None
            raise AssertionError

        return Tool(tool.shape, call_limited)

    def _attempt(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        with self.slots:
            return run_in_thread(lambda: _call(tool.function, arguments), self.timeout, f"arena-tool-{tool.name}")


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    result = function(**arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def run_in_thread(work: Callable[[], Any], seconds: float | None, name: str) -> Any:
    """Run `work` in a daemon thread and return its result. Raises TimeoutError after `seconds` (None: no limit).

    The abandoned thread goes on. Raises SimulatorFault if more than `MAX_HANGING` such threads are alive.
    """
    _HANGING[:] = [thread for thread in _HANGING if thread.is_alive()]
    if len(_HANGING) > MAX_HANGING:
        raise SimulatorFault(f"{len(_HANGING)} tool calls hang: no further call starts")
    ended, context = Future[Any](), copy_context()

    def run() -> None:
        try:
            ended.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 raised in the waiting thread
            ended.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        if not ended.done():
            _HANGING.append(thread)
        raise
