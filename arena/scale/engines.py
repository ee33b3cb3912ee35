"""Engine that distributes matches over several engine processes on Ray.

One engine generates all turns of a match, so that it can keep their attention caches. Each engine computes one batch at
a time, of all its waiting requests; a single engine has the same batches as an engine in this process. If an engine
dies, only its pending replies are lost. It is replaced and gets the current weights.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import numpy as np

from agents.engines.base import Completion, Request
from agents.engines.spec import EngineSpec
from agents.errors import EngineDied, EngineError, EnginesLost
from agents.model_config import first_line
from agents.precision import Precision
from agents.published import FolderWeights, Weights
from agents.stream import Stream
from arena.errors import RanksLost
from arena.scale.broadcasts import Broadcasts
from arena.scale.cluster import Cluster
from arena.scale.host import EngineHost
from arena.scale.place import EngineSlot, PendingRequest, Shipment
from arena.scale.tensors import RankWeights
from arena.scale.worker import Worker, WorkerDied, make_actor

RESTARTS = 5
"""Maximum replacements of an engine between two updates. After these it is given up."""


class ScaledEngine:
    """Engine that distributes requests to the engine processes of a cluster, one engine for each match."""

    def __init__(self, cluster: Cluster, spec: EngineSpec, precision: Precision = Precision.FP32) -> None:
        self.spec, self.precision, self._cluster = spec, precision, cluster
        self.capabilities, self.max_context = spec.capabilities, spec.max_context
        self._broadcasts = Broadcasts(cluster.spec.patience, cluster.spec.deadline, cluster.watchdog.note)
        count = cluster.spec.engines
        send = cluster.shipping.send
        self._slots = [EngineSlot(index=i, make=self._worker, fetch=self._fetch, send=send) for i in range(count)]
        self._published: dict[str, Shipment] = {}
        self._matches: dict[str, EngineSlot] = {}
        """Engine of each match in progress."""
        self._ranks_lost: RanksLost | None = None
        """Error because of which an engine could not receive weights from the ranks; None if there was none."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set whenever an engine becomes ready or is given up."""

    def _worker(self, slot: EngineSlot) -> Worker:
        reserved = self._cluster.spec.resources.engine
        given = self.spec, self.precision, max(1, int(reserved.cpus)), reserved.gpus
        actor = make_actor(EngineHost, self._cluster.engine(slot.index), *given)
        return Worker(slot.name, actor, self._cluster.watchdog, lambda error: self._handle_death(slot, error))

    async def open(self) -> None:
        """Start all engine processes. Raises EngineError, with all stopped, if one cannot be started."""
        try:
            await asyncio.gather(*(slot.start(self._published) for slot in self._slots))
        except WorkerDied as error:
            await self.close()
            raise EngineError(f"scale: {error}") from None

    async def close(self) -> None:
        """Stop all engine processes and pending work. Requests can no longer be sent."""
        for task in self._tasks:
            task.cancel()
        workers = [slot.worker for slot in self._slots if slot.worker]
        await asyncio.gather(*(_close(worker) for worker in workers))
        for slot in self._slots:
            slot.ready, slot.is_given_up = False, True

    def figures(self) -> dict[str, float]:
        """Return the sums of the engines' statistics by name. `seconds` of several engines may exceed elapsed time."""
        figures = [slot.figures() for slot in self._slots]
        return {name: sum(one.get(name, 0.0) for one in figures) for name in {"seconds"}.union(*figures)}

    # -- published weights -------------------------------------------------------------------------------

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Send a version of a policy's weights to every ready engine: a folder, or a broadcast from the ranks."""
        assert isinstance(weights, FolderWeights | RankWeights), "weights of this process reach no engine"
        self._published[policy] = shipment = Shipment(version, weights)
        if isinstance(weights, FolderWeights):
            await self._for_each_ready(lambda slot: slot.sync(self._published))
        else:
            await self._broadcast(policy, shipment)
        self._changed.set()
        for slot in self._slots:
            self._schedule(slot)

    async def _broadcast(self, policy: str, shipment: Shipment) -> None:
        """Broadcast a version of a policy to every ready engine. The others get it when they start."""
        async with AsyncExitStack() as stack:
            slots = [slot for slot in self._slots if slot.ready]
            for slot in slots:
                await stack.enter_async_context(slot.syncing)
            due = [slot for slot in slots if slot.ready and slot.served.get(policy) is not shipment]
            for slot, error in await self._broadcasts.send(policy, shipment, due):
                self._handle_death(slot, error)

    async def _fetch(self, policy: str, shipment: Shipment, slot: EngineSlot) -> None:
        """Broadcast a version of a policy to one engine. Raises WorkerDied if that fails."""
        for _, error in await self._broadcasts.send(policy, shipment, [slot]):
            raise error

    async def release(self, policy: str) -> None:
        """Free, in all engines, the memory that the policy's next version rebuilds, and reset replacement counts."""
        for slot in self._slots:
            slot.restarts = 0

        async def release(slot: EngineSlot) -> None:
            if policy in slot.served:
                await slot.ask("release", policy)

        await self._for_each_ready(release)

    async def retire(self, policy: str) -> None:
        """Remove the policy from all engines."""
        self._published.pop(policy, None)
        await self._for_each_ready(lambda slot: slot.sync(self._published))

    async def _for_each_ready(self, work: Callable[[EngineSlot], Awaitable[None]]) -> None:
        async def try_work(slot: EngineSlot) -> None:
            try:
                await work(slot)
            except WorkerDied as error:
                self._handle_death(slot, error)

        await asyncio.gather(*(try_work(slot) for slot in self._slots if slot.ready))

    def forget(self, key: str) -> None:
        """Unassign the match of the stream `key` from its engine. The next batches drop the stream's caches."""
        slot = self._matches.pop(_match_of(key), None)
        if slot:
            slot.matches -= 1
        for slot in self._slots:
            slot.forgotten.append(key)

    # -- requests ----------------------------------------------------------------------------------------

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a completion for each request, in order, on the engine of its match.

        Raises EngineDied if that engine dies, EnginesLost if none is left, and KeyError for an unpublished policy.
        """
        for request in requests:
            if request.policy not in self._published:
                raise KeyError(f"no weights are published for policy '{request.policy}'")
        loop, futures = asyncio.get_running_loop(), []
        for request in requests:
            futures.append(loop.create_future())
            self._enqueue((request, futures[-1]))
        return list(await asyncio.gather(*futures))

    def _enqueue(self, pending: PendingRequest) -> None:
        match = _match_of(pending[0].key)
        slot = self._matches.get(match)
        if slot is None:
            choices = [one for one in self._slots if not one.is_given_up]
            here = [one for one in choices if one.ready and one.served.keys() >= self._published.keys()]
            here = here or [one for one in choices if one.ready] or choices
            if not here:
                pending[1].set_exception(self._no_engine_error())
                return
            slot = self._matches[match] = min(here, key=lambda one: (one.matches, one.index))
            slot.matches += 1
        slot.waiting.append(pending)
        self._schedule(slot)

    def _schedule(self, slot: EngineSlot) -> None:
        """Send an engine's waiting requests soon: after a few passes of the event loop without new requests."""
        if not slot.busy and any(slot.serves(request.policy) for request, _ in slot.waiting):
            asyncio.get_running_loop().call_soon(self._send_when_quiet, slot, len(slot.waiting), 2)

    def _send_when_quiet(self, slot: EngineSlot, count: int, rounds: int) -> None:
        if count != len(slot.waiting) or slot.busy or not slot.ready:
            return  # a later request, the end of a batch or a start schedules it again
        if rounds:
            asyncio.get_running_loop().call_soon(self._send_when_quiet, slot, count, rounds - 1)
            return
        pending = slot.take_due()
        if self.capabilities.batches_continuously:
            for one in pending:
                self._start_task(self._send(slot, [one]))
        elif pending:
            slot.busy = True
            self._start_task(self._send(slot, pending))

    async def _send(self, slot: EngineSlot, pending: list[PendingRequest]) -> None:
        forgotten, slot.forgotten = slot.forgotten, []
        requests = [request for request, _ in pending]
        answers: Sequence[Any]
        try:
            answers = await slot.ask_results("generate", requests, forgotten, label=f"{len(pending)} replies")
        except WorkerDied as error:
            self._handle_death(slot, error)
            answers = [EngineDied(str(error)) for _ in pending]
        except Exception as error:  # noqa: BLE001 the waiting tasks must receive it, or they would wait forever
            answers = [error] * len(pending)
        slot.busy = False
        slot.answered.set()
        for (_, future), answer in zip(pending, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._schedule(slot)

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        """Return the log-probabilities of each stream's tokens under a policy, computed by all ready engines.

        If an engine dies, the others take over its share. Raises EnginesLost if none is left.
        """
        scored: dict[int, np.ndarray] = {}
        while missing := [index for index in range(len(streams)) if index not in scored]:
            slots = await self._wait_ready(policy)

            async def scores(slot: EngineSlot, part: Sequence[int]) -> None:
                given = [streams[i] for i in part], [temperatures[i] for i in part], full_vocabulary
                try:
                    result = await slot.ask_results("score", policy, *given, label=f"scores of {len(part)} streams")
                except WorkerDied as error:
                    self._handle_death(slot, error)
                else:
                    scored.update(zip(part, result, strict=True))

            parts = _distribute(missing, streams, len(slots))
            await asyncio.gather(*(scores(*one) for one in zip(slots, parts, strict=True) if one[1]))
        return [scored[index] for index in range(len(streams))]

    # -- deaths of engines -------------------------------------------------------------------------------

    async def _wait_ready(self, policy: str) -> list[EngineSlot]:
        """Wait for and return the engines that serve a policy, at least one. Raises EnginesLost if all are given up."""
        while not (ready := [slot for slot in self._slots if slot.serves(policy)]):
            if all(slot.is_given_up for slot in self._slots):
                raise self._no_engine_error()
            self._changed.clear()
            await self._changed.wait()
        return ready

    def _handle_death(self, slot: EngineSlot, error: WorkerDied) -> None:
        """Move the matches of a dead engine to the others and start its replacement, unless this was done already."""
        if not slot.ready or (slot.worker and slot.worker.alive):
            return  # another call has handled it
        slot.ready = False
        self._start_task(self._replace(slot, str(error)))
        self._move(slot)

    def _move(self, slot: EngineSlot) -> None:
        """Unassign an engine's matches, and queue its waiting requests at other engines."""
        waiting, slot.waiting, slot.matches = slot.waiting, [], 0
        self._matches = {match: other for match, other in self._matches.items() if other is not slot}
        for pending in waiting:
            self._enqueue(pending)

    async def _replace(self, slot: EngineSlot, why: str) -> None:
        while slot.restarts < RESTARTS:
            slot.restarts += 1
            self._cluster.watchdog.note(f"{why}: it is restarted ({slot.restarts} of {RESTARTS} times)")
            try:
                await slot.start(self._published)
            except RanksLost as error:  # the run will restart with other ranks
                self._ranks_lost, slot.is_given_up = error, True
                break
            except Exception as error:  # noqa: BLE001 the other engines continue
                why = str(error) if isinstance(error, WorkerDied) else f"{slot.name}: {first_line(error)}"
                if slot.worker:
                    slot.worker.kill()
                continue
            break
        else:
            slot.is_given_up = True
            self._cluster.watchdog.note(f"{why}: it is given up after {RESTARTS} restarts, and the others continue")
        self._changed.set()
        if slot.is_given_up:
            self._move(slot)
        self._schedule(slot)

    def _no_engine_error(self) -> EnginesLost | RanksLost:
        return self._ranks_lost or EnginesLost(
            f"none of {len(self._slots)} engines is left: each died {RESTARTS + 1} times"
        )

    def _start_task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _match_of(key: str) -> str:
    """Return the match id at the start of a stream's key."""
    return key.partition("/")[0]


def _distribute(indices: Sequence[int], streams: Sequence[Stream], parts: int) -> list[list[int]]:
    """Distribute stream indices over `parts` lists with about equal numbers of tokens; each list is sorted."""
    lists, tokens = [list[int]() for _ in range(parts)], [0] * parts
    for index in sorted(indices, key=lambda i: -len(streams[i])):
        part = tokens.index(min(tokens))
        lists[part].append(index)
        tokens[part] += len(streams[index])
    return [sorted(part) for part in lists]


async def _close(worker: Worker) -> None:
    """Ask an engine to close its files and processes, with a timeout of 10 seconds, and then kill its process."""
    try:
        async with asyncio.timeout(10):
            await worker.call("close")
    except Exception:  # noqa: BLE001 the process is killed anyway
        pass
    worker.kill()
