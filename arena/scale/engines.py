"""Engine made of several engine processes on Ray, among which matches are distributed.

One engine generates all turns of a match, so that it can keep their attention caches. Each engine has one batch at a
time, of all requests that wait for it: with one engine, batches equal those of an engine in this process. If an engine
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
"""Maximum replacements of an engine between two updates. After that it is given up."""


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
        """Reason for which an engine could not receive weights from the ranks; None without one."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set whenever an engine becomes ready or is given up."""

    def _worker(self, place: EngineSlot) -> Worker:
        reserved = self._cluster.spec.resources.engine
        given = self.spec, self.precision, max(1, int(reserved.cpus)), reserved.gpus
        actor = make_actor(EngineHost, self._cluster.engine(place.index), *given)
        return Worker(place.name, actor, self._cluster.watchdog, lambda error: self._handle_death(place, error))

    async def open(self) -> None:
        """Start all engine processes. Raises EngineError, with all stopped, if one cannot be started."""
        try:
            await asyncio.gather(*(place.start(self._published) for place in self._slots))
        except WorkerDied as error:
            await self.close()
            raise EngineError(f"scale: {error}") from None

    async def close(self) -> None:
        """Stop all engine processes and pending work. Requests can no longer be sent."""
        for task in self._tasks:
            task.cancel()
        workers = [place.worker for place in self._slots if place.worker]
        await asyncio.gather(*(_close(worker) for worker in workers))
        for place in self._slots:
            place.ready, place.is_given_up = False, True

    def figures(self) -> dict[str, float]:
        """Return the engines' statistics by name, summed. With several, `seconds` grows faster than the clock."""
        figures = [place.figures() for place in self._slots]
        return {name: sum(one.get(name, 0.0) for one in figures) for name in {"seconds"}.union(*figures)}

    # -- published weights -------------------------------------------------------------------------------

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Send a version of a policy's weights to every ready engine: a folder, or a broadcast from the ranks."""
        assert isinstance(weights, FolderWeights | RankWeights), "weights of this process reach no engine"
        self._published[policy] = shipment = Shipment(version, weights)
        if isinstance(weights, FolderWeights):
            await self._for_each_ready(lambda place: place.sync(self._published))
        else:
            await self._broadcast(policy, shipment)
        self._changed.set()
        for place in self._slots:
            self._schedule(place)

    async def _broadcast(self, policy: str, shipment: Shipment) -> None:
        """Broadcast a version of a policy to every ready engine; others get it when they start."""
        async with AsyncExitStack() as stack:
            places = [place for place in self._slots if place.ready]
            for place in places:
                await stack.enter_async_context(place.syncing)
            due = [place for place in places if place.ready and place.served.get(policy) is not shipment]
            for place, error in await self._broadcasts.send(policy, shipment, due):
                self._handle_death(place, error)

    async def _fetch(self, policy: str, shipment: Shipment, place: EngineSlot) -> None:
        """Broadcast a version of a policy to one engine. Raises WorkerDied if that fails."""
        for _, error in await self._broadcasts.send(policy, shipment, [place]):
            raise error

    async def release(self, policy: str) -> None:
        """Free, in all engines, what the policy's next version rebuilds, and reset all counts of replacements."""
        for place in self._slots:
            place.restarts = 0

        async def release(place: EngineSlot) -> None:
            if policy in place.served:
                await place.ask("release", policy)

        await self._for_each_ready(release)

    async def retire(self, policy: str) -> None:
        """Remove the policy from all engines."""
        self._published.pop(policy, None)
        await self._for_each_ready(lambda place: place.sync(self._published))

    async def _for_each_ready(self, work: Callable[[EngineSlot], Awaitable[None]]) -> None:
        async def try_work(place: EngineSlot) -> None:
            try:
                await work(place)
            except WorkerDied as error:
                self._handle_death(place, error)

        await asyncio.gather(*(try_work(place) for place in self._slots if place.ready))

    def forget(self, key: str) -> None:
        """Drop the cache of the stream `key` in all engines with their next batches, and free its match's engine."""
        place = self._matches.pop(_match_of(key), None)
        if place:
            place.matches -= 1
        for place in self._slots:
            place.forgotten.append(key)

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
        place = self._matches.get(match)
        if place is None:
            choices = [one for one in self._slots if not one.is_given_up]
            here = [one for one in choices if one.ready and one.served.keys() >= self._published.keys()]
            here = here or [one for one in choices if one.ready] or choices
            if not here:
                pending[1].set_exception(self._no_engine_error())
                return
            place = self._matches[match] = min(here, key=lambda one: (one.matches, one.index))
            place.matches += 1
        place.waiting.append(pending)
        self._schedule(place)

    def _schedule(self, place: EngineSlot) -> None:
        """Schedule sending an engine's waiting requests, once no more arrive for a few passes of the event loop."""
        if not place.busy and any(place.serves(request.policy) for request, _ in place.waiting):
            asyncio.get_running_loop().call_soon(self._send_when_quiet, place, len(place.waiting), 2)

    def _send_when_quiet(self, place: EngineSlot, count: int, rounds: int) -> None:
        if count != len(place.waiting) or place.busy or not place.ready:
            return  # a later request, or the end of a batch or start, schedules it again
        if rounds:
            asyncio.get_running_loop().call_soon(self._send_when_quiet, place, count, rounds - 1)
            return
        pending = place.take_due()
        if self.capabilities.batches_continuously:
            for one in pending:
                self._start_task(self._send(place, [one]))
        elif pending:
            place.busy = True
            self._start_task(self._send(place, pending))

    async def _send(self, place: EngineSlot, pending: list[PendingRequest]) -> None:
        forgotten, place.forgotten = place.forgotten, []
        requests = [request for request, _ in pending]
        answers: Sequence[Any]
        try:
            answers = await place.ask_results("generate", requests, forgotten, label=f"{len(pending)} replies")
        except WorkerDied as error:
            self._handle_death(place, error)
            answers = [EngineDied(str(error)) for _ in pending]
        except Exception as error:  # noqa: BLE001 the waiting tasks must get it, or they would wait forever
            answers = [error] * len(pending)
        place.busy = False
        place.answered.set()
        for (_, future), answer in zip(pending, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._schedule(place)

    async def score(
        self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float], full_vocabulary: bool = False
    ) -> list[np.ndarray]:
        """Return the log-probabilities of each stream's tokens under a policy, computed by all ready engines.

        If an engine dies, others repeat its share. Raises EnginesLost if none is left.
        """
        scored: dict[int, np.ndarray] = {}
        while missing := [index for index in range(len(streams)) if index not in scored]:
            places = await self._wait_ready(policy)

            async def scores(place: EngineSlot, part: Sequence[int]) -> None:
                given = [streams[i] for i in part], [temperatures[i] for i in part], full_vocabulary
                try:
                    result = await place.ask_results("score", policy, *given, label=f"scores of {len(part)} streams")
                except WorkerDied as error:
                    self._handle_death(place, error)
                else:
                    scored.update(zip(part, result, strict=True))

            parts = _distribute(missing, streams, len(places))
            await asyncio.gather(*(scores(*one) for one in zip(places, parts, strict=True) if one[1]))
        return [scored[index] for index in range(len(streams))]

    # -- deaths of engines -------------------------------------------------------------------------------

    async def _wait_ready(self, policy: str) -> list[EngineSlot]:
        """Wait for and return the engines that serve a policy, at least one. Raises EnginesLost if all are given up."""
        while not (ready := [place for place in self._slots if place.serves(policy)]):
            if all(place.is_given_up for place in self._slots):
                raise self._no_engine_error()
            self._changed.clear()
            await self._changed.wait()
        return ready

    def _handle_death(self, place: EngineSlot, error: WorkerDied) -> None:
        """Unless it is done already, move the matches of a dead engine to the others and start its replacement."""
        if not place.ready or (place.worker and place.worker.alive):
            return  # another call has handled it
        place.ready = False
        self._start_task(self._replace(place, str(error)))
        self._move(place)

    def _move(self, place: EngineSlot) -> None:
        """Unassign an engine's matches, and queue its waiting requests at other engines."""
        waiting, place.waiting, place.matches = place.waiting, [], 0
        self._matches = {match: other for match, other in self._matches.items() if other is not place}
        for pending in waiting:
            self._enqueue(pending)

    async def _replace(self, place: EngineSlot, why: str) -> None:
        while place.restarts < RESTARTS:
            place.restarts += 1
            self._cluster.watchdog.note(f"{why}: it is started again ({place.restarts} of {RESTARTS} times)")
            try:
                await place.start(self._published)
            except RanksLost as error:  # the run will start again with others
                self._ranks_lost, place.is_given_up = error, True
                break
            except Exception as error:  # noqa: BLE001 the other engines continue
                why = str(error) if isinstance(error, WorkerDied) else f"{place.name}: {first_line(error)}"
                if place.worker:
                    place.worker.kill()
                continue
            break
        else:
            place.is_given_up = True
            self._cluster.watchdog.note(f"{why}: it is given up after {RESTARTS} starts, and the others go on")
        self._changed.set()
        if place.is_given_up:
            self._move(place)
        self._schedule(place)

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
    """Ask an engine to stop, which may own files and processes, for up to 10 seconds, and then kill its process."""
    try:
        async with asyncio.timeout(10):
            await worker.call("close")
    except Exception:  # noqa: BLE001 the process is killed anyway
        pass
    worker.kill()
