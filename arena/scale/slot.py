"""State that the driver keeps for each engine: its current process, waiting requests and number of replacements."""

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
"""Request with the future of its reply."""


class Shipment(NamedTuple):
    """Published version of a policy, to be sent to every engine."""

    version: int
    weights: Any
    """FolderWeights, of which engines get a copy of the folder, or RankWeights, which are broadcast."""

    @property
    def is_available(self) -> bool:
        """True while an engine can still receive it: until the next update, if the weights are on the ranks."""
        return not isinstance(self.weights, RankWeights) or self.weights.is_current()


@dataclass(eq=False, kw_only=True)
class EngineSlot:
    """One of a run's engines, across its successive processes: current process, waiting requests, replacements."""

    index: int
    make: Callable[["EngineSlot"], Worker]
    """Create the actor of a new process."""
    broadcast: Callable[[str, Shipment, "EngineSlot"], Awaitable[None]]
    """Broadcast a version of a policy from the ranks to this engine. Raises WorkerDied or WeightsGone."""
    send: Callable[[str, Path], Awaitable[Path]]
    """(node, folder of the driver) -> path of the folder on that node, which is sent there if missing."""
    worker: Worker | None = None
    is_ready: bool = False
    """True if requests may be sent."""
    is_given_up: bool = False
    """True if the engine will not be replaced any more."""
    restarts: int = 0
    """Number of replacements since the last update."""
    matches: int = 0
    """Number of matches assigned to the engine."""
    busy: bool = False
    """True while the engine computes a batch."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after each batch."""
    waiting: list[PendingRequest] = field(default_factory=list)
    """Requests that have not been sent."""
    dropped_keys: list[str] = field(default_factory=list)
    """Keys of streams to drop with the next batch."""
    served: dict[str, Shipment] = field(default_factory=dict)
    """Published versions that the process serves, by policy."""
    incomplete: set[str] = field(default_factory=set)
    """Policies whose weights are incomplete, because a broadcast is in progress or has failed. They get no requests."""
    syncing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while published weights are sent."""
    location: Location | None = None
    _earlier: Counter[str] = field(default_factory=Counter)
    """Statistics of earlier processes."""
    _current: Mapping[str, float] = field(default_factory=dict)
    """Statistics of the current process."""

    @property
    def name(self) -> str:
        """Name of the engine in messages, such as `engine 0`."""
        return f"engine {self.index}"

    async def start(self, published: Mapping[str, Shipment]) -> None:
        """Start a new process, send it the published versions, and mark the engine ready.

        Raises WorkerDied or the engine's own error.
        """
        self._earlier, self._current = Counter(self.figures()), {}
        self.served, self.incomplete, self.syncing = {}, set(), asyncio.Lock()
        self.worker = worker = self.make(self)
        await worker.await_start()
        await worker.call("open", label="its start")
        self.location = await worker.call("locate", label="its start")
        await self.sync(published)
        self.is_ready = True

    async def sync(self, published: Mapping[str, Shipment]) -> None:
        """Send the process all published versions that it lacks, and retire policies that are no longer published.

        Weights that the ranks no longer hold are skipped: the engine gets the policy's next version instead.
        """
        async with self.syncing:
            for policy in [name for name in self.served if name not in published]:
                del self.served[policy]
                await self.ask("retire", policy)
            # also sends versions that are published meanwhile: nothing is awaited after the last check
            while due := [n for n, one in published.items() if self.served.get(n) is not one and one.is_available]:
                policy, shipment = due[0], published[due[0]]
                if isinstance(shipment.weights, RankWeights):
                    with suppress(WeightsGone):  # then it is no longer due
                        await self.broadcast(policy, shipment, self)
                else:
                    weights = replace(shipment.weights, folder=await self.send_folder(shipment.weights.folder))
                    await self.ask("publish", policy, shipment.version, weights, label=f"publish of {policy}")
                    self.served[policy] = shipment

    async def send_folder(self, folder: Path) -> Path:
        """Send a model folder of the driver to the engine's node if needed. Returns its path there.

        Raises WorkerDied, with the process killed, if the node is gone.
        """
        assert self.worker is not None and self.location is not None
        try:
            return await self.send(self.location.node, folder)
        except WorkerDied as error:
            self.worker.kill()
            raise WorkerDied(f"{self.name} died: {error}") from None

    def serves(self, policy: str) -> bool:
        """Return True if requests for the policy may be sent now."""
        return self.is_ready and policy in self.served and policy not in self.incomplete

    async def wait_idle(self) -> None:
        """Wait until the engine has answered the batch that it computes."""
        while self.busy:
            self.answered.clear()
            await self.answered.wait()

    def take_due(self) -> list[PendingRequest]:
        """Remove the waiting requests that may be sent now, and return those that were not cancelled."""
        due = [pending for pending in self.waiting if self.serves(pending[0].policy)]
        self.waiting = [pending for pending in self.waiting if not self.serves(pending[0].policy)]
        return [pending for pending in due if not pending[1].done()]

    async def ask_results(self, method: str, *arguments: Any, label: str) -> list[Any]:
        """Call a method that returns (results, statistics), store the statistics, and return the results."""
        answer, self._current = await self.ask(method, *arguments, label=label)
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
        return dict(self._earlier + Counter(self._current))
