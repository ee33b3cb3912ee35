"""An engine's place in a run: the process that is there now, what waits for it, and how often it was replaced."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.engines.base import Completion, Request
from arena.scale.worker import Worker, WorkerDied

Asked = tuple[Request, asyncio.Future[Completion]]


class Shipment(NamedTuple):
    """A version of a policy, as it is sent to every engine."""

    version: int
    weights: Any
    """A folder, or a reference to arrays in Ray's store."""


@dataclass(eq=False)
class Place:
    """One of a run's engines, through all its processes."""

    index: int
    make: Callable[["Place"], Worker]
    worker: Worker | None = None
    ready: bool = False
    """Whether requests may be sent."""
    gone: bool = False
    """Whether it was given up."""
    restarts: int = 0
    """How often it was replaced since the last update."""
    matches: int = 0
    """Number of matches whose turns are written here."""
    busy: bool = False
    """Whether a batch is out."""
    waiting: list[Asked] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Keys of streams that have ended since the last batch."""
    has: dict[str, Shipment] = field(default_factory=dict)
    """What the process serves."""
    settling: asyncio.Lock = field(default_factory=asyncio.Lock)
    _before: Counter[str] = field(default_factory=Counter)
    _now: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name for the user."""
        return f"engine {self.index}"

    async def start(self, published: Mapping[str, Shipment]) -> None:
        """Start a process that serves all of this; WorkerDied, or the engine's own error, where that fails."""
        self._before, self._now = Counter(self.figures()), {}
        self.has, self.settling = {}, asyncio.Lock()
        self.worker = worker = self.make(self)
        await worker.begin()
        await worker.call("open", what="its start")
        await self.settle(published)
        self.ready = True

    async def settle(self, published: Mapping[str, Shipment]) -> None:
        """Have the process serve what is published, and nothing else."""
        async with self.settling:
            for policy in [name for name in self.has if name not in published]:
                del self.has[policy]
                await self.ask("retire", policy)
            # what is published while another version is being sent is sent, too: nothing is awaited after the last look
            while due := [name for name, shipment in published.items() if self.has.get(name) is not shipment]:
                shipment = published[due[0]]
                await self.ask("publish", due[0], *shipment, what=f"publish of {due[0]}")
                self.has[due[0]] = shipment

    async def answer(self, method: str, *given: Any, what: str) -> list[Any]:
        """Call a method that answers with the engine's figures."""
        answer, self._now = await self.ask(method, *given, what=what)
        return list(answer)

    async def ask(self, method: str, *given: Any, what: str = "") -> Any:
        """Call a method; WorkerDied where the process is gone."""
        if self.worker is None:
            raise WorkerDied(f"{self.name} has ended")
        return await self.worker.call(method, *given, what=what)

    def figures(self) -> dict[str, float]:
        """The engine's figures over all its processes."""
        return dict(self._before + Counter(self._now))
