"""One process of a run behind its Ray actor: calls that say what became of them, and an end that is certain."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from arena.scale.watchdog import Watchdog, Watched

START = 300.0
"""Seconds that a process has to start: on a busy machine, importing torch alone takes some."""


class WorkerDied(Exception):
    """A process has ended, or cannot be reached; the message says which, in one line."""


class Worker:
    """An actor whose methods are coroutines; one of them is `ping`, which tells node and process."""

    def __init__(self, name: str, actor: Any, watchdog: Watchdog, lost: Callable[[WorkerDied], None]) -> None:
        """`lost` is called when the watchdog finds it dead or ends it, whether anybody waits for it or not."""
        self.name, self.actor, self._watchdog, self._lost = name, actor, watchdog, lost
        self.alive = True
        self._watched: Watched | None = None
        self._handle: int | None = None
        """Descriptor of the process, where it is on this node: unlike its number, never another's."""

    async def begin(self) -> None:
        """Wait until the process is there, and watch it from then on."""
        import ray

        try:
            async with asyncio.timeout(START):
                node, pid = await self.call("ping", what="its start")
        except TimeoutError:
            self.kill()
            raise WorkerDied(f"{self.name} did not start within {START:g} s") from None
        if node == ray.get_runtime_context().get_node_id():
            with suppress(OSError):
                self._handle = os.pidfd_open(pid)
        self._watched = self._watchdog.watch(self.name, lambda: self.actor.ping.remote(), self._end, self._end)

    async def call(self, method: str, *given: Any, what: str = "") -> Any:
        """Call a method; WorkerDied where the process is gone, else what the method raised, as it raised it."""
        from ray.exceptions import RayError, RayTaskError

        if not self.alive:
            raise WorkerDied(f"{self.name} has ended")
        with self._watched.calling(what or method) if self._watched else nullcontext():
            try:
                return await getattr(self.actor, method).remote(*given)
            except RayTaskError as error:
                raise error.cause from None
            except RayError as error:
                self.kill()
                raise WorkerDied(f"{self.name} died in {what or method} ({type(error).__name__})") from None

    def _end(self) -> None:
        if self.alive and self._watched:
            doing, _ = self._watched.longest()
            self.kill()
            self._lost(WorkerDied(f"{self.name} died in {doing}" if doing else f"{self.name} died"))

    def kill(self) -> None:
        """End the process at once, however it is; every call that waits for it fails."""
        import ray

        self.alive = False
        if self._watched:
            self._watched.stop()
        with suppress(Exception):
            ray.kill(self.actor)
        if self._handle is not None:  # a stopped process hears nothing of Ray
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.close(self._handle)
            self._handle = None


def actor_of(kind: Callable[..., Any], options: dict[str, Any], *given: Any) -> Any:
    """A new actor of a class."""
    import ray

    return ray.remote(kind).options(**options).remote(*given)
