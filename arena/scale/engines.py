"""Several engines behind one: actors on Ray, among which the matches are shared out.

All turns of a match are written by one engine, which keeps its attention caches. Each engine has one batch out at a
time, of all that waited for it: with one engine, batches are those of an engine in this process. An engine that dies
takes only the replies with it that it owed: it is replaced, and given the present weights.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from agents.computing import compute
from agents.engines.base import Completion, Request
from agents.engines.spec import EngineSpec
from agents.errors import EngineDied, EngineError, EnginesLost
from agents.model_config import first_line
from agents.precision import Precision
from agents.published import FolderWeights, Weights, as_arrays
from agents.stream import Stream
from arena.scale.cluster import Cluster
from arena.scale.host import EngineHost
from arena.scale.place import Asked, Place, Shipment
from arena.scale.worker import Worker, WorkerDied, actor_of

RESTARTS = 5
"""How often an engine is replaced between two updates before it is given up."""


class ScaledEngine:
    """The engines of a cluster as one."""

    def __init__(self, cluster: Cluster, spec: EngineSpec, precision: Precision = Precision.FP32) -> None:
        self.spec, self.precision, self._cluster = spec, precision, cluster
        self.max_context = spec.max_context
        self._places = [Place(index, self._worker) for index in range(cluster.spec.engines)]
        self._published: dict[str, Shipment] = {}
        self._matches: dict[str, Place] = {}
        """Where the turns of a match are written."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set whenever an engine is ready again, or given up."""

    def _worker(self, place: Place) -> Worker:
        reserved = self._cluster.spec.resources.engine
        given = self.spec, self.precision, max(1, int(reserved.cpus)), max(1, int(reserved.gpus))
        actor = actor_of(EngineHost, self._cluster.engine(place.index), *given)
        return Worker(place.name, actor, self._cluster.watchdog, lambda error: self._lost(place, error))

    async def open(self) -> None:
        """Start all engines; EngineError where one cannot be started."""
        try:
            await asyncio.gather(*(place.start(self._published) for place in self._places))
        except WorkerDied as error:
            await self.close()
            raise EngineError(f"scale: {error}") from None

    async def close(self) -> None:
        """Stop all engines."""
        for task in self._tasks:
            task.cancel()
        workers = [place.worker for place in self._places if place.worker]
        await asyncio.gather(*(_closed(worker) for worker in workers))
        for place in self._places:
            place.ready, place.gone = False, True

    def figures(self) -> dict[str, float]:
        """Sums over the engines: of several that compute at once, `seconds` grows faster than the clock."""
        told = [place.figures() for place in self._places]
        return {name: sum(one.get(name, 0.0) for one in told) for name in {"seconds"}.union(*told)}

    # -- what is served ----------------------------------------------------------------------------------

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Send a version to every engine; arrays are stored once."""
        self._published[policy] = Shipment(version, await compute(_stored, weights))
        await self._everywhere(lambda place: place.settle(self._published))

    async def release(self, policy: str) -> None:
        """Free everywhere what the next version rebuilds."""
        for place in self._places:
            place.restarts = 0
        await self._everywhere(lambda place: place.ask("release", policy))

    async def retire(self, policy: str) -> None:
        """Serve that name nowhere any more."""
        self._published.pop(policy, None)
        await self._everywhere(lambda place: place.settle(self._published))

    async def _everywhere(self, work: Callable[[Place], Awaitable[None]]) -> None:
        async def tried(place: Place) -> None:
            try:
                await work(place)
            except WorkerDied as error:
                self._lost(place, error)

        await asyncio.gather(*(tried(place) for place in self._places if place.ready))

    def forget(self, key: str) -> None:
        """Drop a stream's cache wherever it is, with the next batch."""
        place = self._matches.pop(_match(key), None)
        if place:
            place.matches -= 1
        for place in self._places:
            place.forgotten.append(key)

    # -- what is asked -----------------------------------------------------------------------------------

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample one completion per request; EngineDied where an engine died that owed one."""
        for request in requests:
            if request.policy not in self._published:
                raise KeyError(f"no weights are published for policy '{request.policy}'")
        loop, futures = asyncio.get_running_loop(), []
        for request in requests:
            futures.append(loop.create_future())
            self._enqueue((request, futures[-1]))
        return list(await asyncio.gather(*futures))

    def _enqueue(self, asked: Asked) -> None:
        match = _match(asked[0].key)
        place = self._matches.get(match)
        if place is None:
            here = [one for one in self._places if one.ready] or [one for one in self._places if not one.gone]
            if not here:
                asked[1].set_exception(self._none_left())
                return
            place = self._matches[match] = min(here, key=lambda one: (one.matches, one.index))
            place.matches += 1
        place.waiting.append(asked)
        self._watch(place)

    def _watch(self, place: Place) -> None:
        """Send what waits for an engine once a few passes of the event loop have brought no more."""
        if place.waiting and place.ready and not place.busy:
            asyncio.get_running_loop().call_soon(self._when_quiet, place, len(place.waiting), 2)

    def _when_quiet(self, place: Place, count: int, rounds: int) -> None:
        if count != len(place.waiting) or place.busy or not place.ready:
            return  # a later request has its own watch, and so has the end of a batch or of a start
        if rounds:
            asyncio.get_running_loop().call_soon(self._when_quiet, place, count, rounds - 1)
            return
        asked = [one for one in place.waiting if not one[1].done()]
        place.waiting.clear()
        if self.spec.kind == "vllm":  # which writes each reply at its own pace
            for one in asked:
                self._do(self._send(place, [one]))
        elif asked:
            place.busy = True
            self._do(self._send(place, asked))

    async def _send(self, place: Place, asked: list[Asked]) -> None:
        forgotten, place.forgotten = place.forgotten, []
        requests = [request for request, _ in asked]
        answers: Sequence[Any]
        try:
            answers = await place.answer("generate", requests, forgotten, what=f"{len(asked)} replies")
        except WorkerDied as error:
            self._lost(place, error)
            answers = [EngineDied(str(error)) for _ in asked]
        except Exception as error:  # noqa: BLE001 handed on: the waiting tasks would wait forever
            answers = [error] * len(asked)
        place.busy = False
        for (_, future), answer in zip(asked, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._watch(place)

    async def score(self, policy: str, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
        """Log-probabilities, computed by all engines; what one owed that died, the others compute."""
        scored: dict[int, np.ndarray] = {}
        while missing := [index for index in range(len(streams)) if index not in scored]:
            places = await self._ready()

            async def scores(place: Place, part: Sequence[int]) -> None:
                given = [streams[i] for i in part], [temperatures[i] for i in part]
                try:
                    told = await place.answer("score", policy, *given, what=f"scores of {len(part)} streams")
                except WorkerDied as error:
                    self._lost(place, error)
                else:
                    scored.update(zip(part, told, strict=True))

            parts = _shared_out(missing, streams, len(places))
            await asyncio.gather(*(scores(*one) for one in zip(places, parts, strict=True) if one[1]))
        return [scored[index] for index in range(len(streams))]

    # -- when one dies -----------------------------------------------------------------------------------

    async def _ready(self) -> list[Place]:
        """The engines that are ready, at least one; EnginesLost where none comes back."""
        while not (ready := [place for place in self._places if place.ready]):
            if all(place.gone for place in self._places):
                raise self._none_left()
            self._changed.clear()
            await self._changed.wait()
        return ready

    def _lost(self, place: Place, error: WorkerDied) -> None:
        """The process of an engine is gone: its matches move to the others, and another is started."""
        if not place.ready or (place.worker and place.worker.alive):
            return  # another call has noticed
        place.ready = False
        self._do(self._replace(place, str(error)))
        self._move(place)

    def _move(self, place: Place) -> None:
        """Have the matches of an engine that is not there go on at the others."""
        waiting, place.waiting, place.matches = place.waiting, [], 0
        self._matches = {match: other for match, other in self._matches.items() if other is not place}
        for asked in waiting:
            self._enqueue(asked)

    async def _replace(self, place: Place, why: str) -> None:
        while place.restarts < RESTARTS:
            place.restarts += 1
            self._cluster.watchdog.note(f"{why}: it is started again ({place.restarts} of {RESTARTS} times)")
            try:
                await place.start(self._published)
            except Exception as error:  # noqa: BLE001 the others go on
                why = str(error) if isinstance(error, WorkerDied) else f"{place.name}: {first_line(error)}"
                if place.worker:
                    place.worker.kill()
                continue
            break
        else:
            place.gone = True
            self._cluster.watchdog.note(f"{why}: it is given up after {RESTARTS} starts, and the others go on")
        self._changed.set()
        if place.gone:
            self._move(place)
        self._watch(place)

    def _none_left(self) -> EnginesLost:
        return EnginesLost(f"none of {len(self._places)} engines is left: each died {RESTARTS + 1} times")

    def _do(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _match(key: str) -> str:
    """The match of a stream's key, which begins with it."""
    return key.partition("/")[0]


def _stored(weights: Weights) -> Any:
    """A folder as it is; else a reference to arrays in Ray's store. EngineError where they find no room."""
    given = as_arrays(weights)
    if isinstance(given, FolderWeights):
        return given
    import ray

    try:
        return ray.put(given)
    except ray.exceptions.RayError as error:
        raise EngineError(f"scale: Ray's store has no room for the weights: {first_line(error)}") from None


def _shared_out(indices: Sequence[int], streams: Sequence[Stream], parts: int) -> list[list[int]]:
    """The indices in so many parts of about as many tokens, each in order."""
    shared, tokens = [list[int]() for _ in range(parts)], [0] * parts
    for index in sorted(indices, key=lambda i: -len(streams[i])):
        part = tokens.index(min(tokens))
        shared[part].append(index)
        tokens[part] += len(streams[index])
    return [sorted(part) for part in shared]


async def _closed(worker: Worker) -> None:
    """Stop an engine in its process, which may hold files and processes of its own; then end that."""
    try:
        async with asyncio.timeout(10):
            await worker.call("close")
    except Exception:  # noqa: BLE001 it ends all the same
        pass
    worker.kill()
