"""Handle of one process of a run, which runs a Ray actor: calls with clear errors, and a reliable kill."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from arena.scale.watchdog import Watchdog, WatchedProcess

START_SECONDS = 300.0
"""Timeout for the start of a process: on a busy machine, importing torch takes long."""


class WorkerDied(Exception):
    """Raised if a process has ended or cannot be reached. The one-line message names the process."""


class Worker:
    """Handle of a Ray actor's process. The actor must have a method `ping` that returns its node and process id."""

    def __init__(self, name: str, actor: Any, watchdog: Watchdog, on_death: Callable[[WorkerDied], None]) -> None:
        """Wrap an actor. `on_death` is called with an error if the watchdog finds the process dead or kills it."""
        self.name, self.actor, self._watchdog, self._on_death = name, actor, watchdog, on_death
        self.alive = True
        self._watched: WatchedProcess | None = None
        self._handle: int | None = None
        """Descriptor of a process on this node. Unlike a process id, it cannot refer to another process later."""

    async def await_start(self) -> None:
        """Wait until the process answers a ping, and start watching it. Raises WorkerDied after `START_SECONDS`."""
        import ray

        try:
            async with asyncio.timeout(START_SECONDS):
                node, pid = await self.call("ping", label="its start")
        except TimeoutError:
            self.kill()
            raise WorkerDied(f"{self.name} did not start within {START_SECONDS:g} s") from None
        if node == ray.get_runtime_context().get_node_id():
            with suppress(OSError):
                self._handle = os.pidfd_open(pid)
        self._watched = self._watchdog.watch(
            self.name, lambda: self.actor.ping.remote(), self._handle_exit, self._handle_exit
        )

    async def call(self, method: str, *arguments: Any, label: str = "") -> Any:
        """Call a method of the actor and return its result, or raise its exception. `label` names the call in messages.

        Raises WorkerDied, after making sure that the process is killed, if the actor is lost.
        """
        from ray.exceptions import RayError, RayTaskError

        if not self.alive:
            raise WorkerDied(f"{self.name} has ended")
        with self._watched.register_call(label or method) if self._watched else nullcontext():
            try:
                return await getattr(self.actor, method).remote(*arguments)
            except RayTaskError as error:
                raise error.cause from None
            except RayError as error:
                self.kill()
                raise WorkerDied(f"{self.name} died in {label or method} ({type(error).__name__})") from None

    def _handle_exit(self) -> None:
        if self.alive and self._watched:
            label, _ = self._watched.oldest_call()
            self.kill()
            self._on_death(WorkerDied(f"{self.name} died in {label}" if label else f"{self.name} died"))

    def kill(self) -> None:
        """Kill the process at once, even if it is stopped, and stop watching it. All its waiting calls fail."""
        import ray

        self.alive = False
        if self._watched:
            self._watched.stop()
        with suppress(Exception):
            ray.kill(self.actor)
        if self._handle is not None:  # Ray cannot kill a stopped process
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.close(self._handle)
            self._handle = None
