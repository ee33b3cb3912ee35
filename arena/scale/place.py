"""Slot of one engine in a run: its current process, waiting requests, and number of replacements."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from agents.engines.base import Completion, Request
from arena.scale.host import Location
from arena.scale.tensors import RankWeights, WeightsGone
from arena.scale.worker import Worker, WorkerDied

PendingRequest = tuple[Request, asyncio.Future[Completion]]


class Shipment(NamedTuple):
    """Version of a policy's weights, as sent to every engine."""

    version: int
    weights: Any
    """FolderWeights, or RankWeights, which are broadcast."""

    @property
    def is_available(self) -> bool:
        """Return True while an engine can still receive it, before the ranks learn on."""
        return not isinstance(self.weights, RankWeights) or self.weights.is_current()


@dataclass(eq=False, kw_only=True)
class EngineSlot:
    """Slot of an engine across its successive processes: current process, waiting requests and replacements."""

    index: int
    make: Callable[["EngineSlot"], Worker]
    fetch: Callable[[str, Shipment, "EngineSlot"], Awaitable[None]]
    """Broadcast a version of a policy from the ranks to this engine. Raises WorkerDied or WeightsGone."""
    send: Callable[[str, Path], Awaitable[Path]]
    """(node, folder of the driver) -> the folder on that node, where it is sent if it is missing."""
    worker: Worker | None = None
    ready: bool = False
    """True if requests may be sent."""
    is_given_up: bool = False
    """True if the engine was given up."""
    restarts: int = 0
    """Number of replacements since the last update."""
    matches: int = 0
    """Number of matches assigned to the engine."""
    busy: bool = False
    """True while the engine computes a batch."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after each batch."""
    waiting: list[PendingRequest] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Keys of streams to drop with the next batch."""
    served: dict[str, Shipment] = field(default_factory=dict)
    """Published versions that the process serves, by policy."""
    torn: set[str] = field(default_factory=set)
    """Policies whose weights are being replaced, or could not be: no request for them is sent."""
    syncing: asyncio.Lock = field(default_factory=asyncio.Lock)
    whereabouts: Location | None = None
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
        self.served, self.torn, self.syncing = {}, set(), asyncio.Lock()
        self.worker = worker = self.make(self)
        await worker.await_start()
        await worker.call("open", label="its start")
        self.whereabouts = await worker.call("whereabouts", label="its start")
        await self.sync(published)
        self.ready = True

    async def sync(self, published: Mapping[str, Shipment]) -> None:
        """Send the process all published versions that it lacks, and retire policies no longer published.

        Weights that the ranks no longer hold are left out: the engine gets the policy's next version.
        """
        async with self.syncing:
            for policy in [name for name in self.served if name not in published]:
                del self.served[policy]
                await self.ask("retire", policy)
            # versions published meanwhile are sent, too: nothing is awaited after the last check
            while due := [n for n, one in published.items() if self.served.get(n) is not one and one.is_available]:
                policy, shipment = due[0], published[due[0]]
                if isinstance(shipment.weights, RankWeights):
                    with suppress(WeightsGone):  # then it is no longer due
                        await self.fetch(policy, shipment, self)
                else:
                    weights = replace(shipment.weights, folder=await self.send_folder(shipment.weights.folder))
                    await self.ask("publish", policy, shipment.version, weights, label=f"publish of {policy}")
                    self.served[policy] = shipment

    async def send_folder(self, folder: Path) -> Path:
        """Send the driver's model folder to the engine's node if needed. Returns its path there. Raises WorkerDied."""
        assert self.worker is not None and self.whereabouts is not None
        try:
            return await self.send(self.whereabouts.node, folder)
        except WorkerDied as error:
            self.worker.kill()
            raise WorkerDied(f"{self.name} died: {error}") from None

    def serves(self, policy: str) -> bool:
        """Return True if requests for this policy may be sent now."""
        return self.ready and policy in self.served and policy not in self.torn

    async def wait_idle(self) -> None:
        """Wait until the engine has answered the batch that it computes."""
        while self.busy:
            self.answered.clear()
            await self.answered.wait()

    def take_due(self) -> list[PendingRequest]:
        """Remove and return the waiting requests that may be sent now and are still wanted."""
        due = [one for one in self.waiting if self.serves(one[0].policy)]
        self.waiting = [one for one in self.waiting if not self.serves(one[0].policy)]
        return [one for one in due if not one[1].done()]

    async def ask_results(self, method: str, *arguments: Any, label: str) -> list[Any]:
        """Call a method that returns (results, engine statistics). Stores the statistics and returns the results."""
        answer, self._now = await self.ask(method, *arguments, label=label)
        return list(answer)

    async def ask(self, method: str, *arguments: Any, label: str = "") -> Any:
        """Call a method of the process and return its result; `label` names the call in messages.

        Raises WorkerDied if the process is gone, or the method's own exception.
        """
        if self.worker is None:
            raise WorkerDied(f"{self.name} has ended")
        return await self.worker.call(method, *arguments, label=label)

    def figures(self) -> dict[str, float]:
        """Return the engine's statistics by name, summed over its successive processes."""
        return dict(self._before + Counter(self._now))
