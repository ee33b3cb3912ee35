"""Slot of one engine in a run: its current process, waiting requests, and number of replacements."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.engines.base import Completion, Request
from arena.scale.worker import Worker, WorkerDied

Asked = tuple[Request, asyncio.Future[Completion]]


class Shipment(NamedTuple):
    """Version of a policy's weights, as sent to every engine."""

    version: int
    weights: Any
    """Folder, or reference to arrays in Ray's store."""


@dataclass(eq=False, kw_only=True)
class Place:
    """Slot of an engine across its successive processes: current process, waiting requests and replacements."""

    index: int
    make: Callable[["Place"], Worker]
    worker: Worker | None = None
    ready: bool = False
    """True if requests may be sent."""
    gone: bool = False
    """True if the engine was given up."""
    restarts: int = 0
    """Number of replacements since the last update."""
    matches: int = 0
    """Number of matches assigned to the engine."""
    busy: bool = False
    """True while the engine computes a batch."""
    waiting: list[Asked] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Keys of streams to drop with the next batch."""
    has: dict[str, Shipment] = field(default_factory=dict)
    """Published versions that the process serves, by policy."""
    syncing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _before: Counter[str] = field(default_factory=Counter)
    _now: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the engine in messages, such as `engine 0`."""
        return f"engine {self.index}"

    async def start(self, published: Mapping[str, Shipment]) -> None:
        """Start a new process, bring it up to date with the published versions, and mark it ready.

        Raises WorkerDied or the engine's own error.
        """
        self._before, self._now = Counter(self.figures()), {}
        self.has, self.syncing = {}, asyncio.Lock()
        self.worker = worker = self.make(self)
        await worker.begin()
        await worker.call("open", what="its start")
        await self.sync(published)
        self.ready = True

    async def sync(self, published: Mapping[str, Shipment]) -> None:
        """Send the process all published versions that it lacks, and retire policies no longer published."""
        async with self.syncing:
            for policy in [name for name in self.has if name not in published]:
                del self.has[policy]
                await self.ask("retire", policy)
            # versions published meanwhile are sent, too: nothing is awaited after the last check
            while due := [name for name, shipment in published.items() if self.has.get(name) is not shipment]:
                shipment = published[due[0]]
                await self.ask("publish", due[0], *shipment, what=f"publish of {due[0]}")
                self.has[due[0]] = shipment

    async def answer(self, method: str, *given: Any, what: str) -> list[Any]:
        """Call a method that returns (results, engine statistics). Stores the statistics and returns the results."""
        answer, self._now = await self.ask(method, *given, what=what)
        return list(answer)

    async def ask(self, method: str, *given: Any, what: str = "") -> Any:
        """Call a method of the process and return its result; `what` names the call in messages.

        Raises WorkerDied if the process is gone, or the method's own exception.
        """
        if self.worker is None:
            raise WorkerDied(f"{self.name} has ended")
        return await self.worker.call(method, *given, what=what)

    def figures(self) -> dict[str, float]:
        """Return the engine's statistics by name, summed over its successive processes."""
        return dict(self._before + Counter(self._now))
