"""Broadcasts of weights from the ranks to engines: the driver's side, which sees no weights.

An engine counts as up to date only after its own answer. One that could not receive all gets no requests until a
repetition succeeds, so that no reply is of two versions; after several failures its process is killed.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, count
from typing import TypeVar

from agents.weights import resolve_base
from arena.scale.host import ExpectedWeights, IncomingWeights
from arena.scale.layout import BUCKET, SHARED_BUCKET
from arena.scale.place import EngineSlot, Shipment
from arena.scale.tensors import RankWeights, WeightsGone
from arena.scale.transfer import Link, TransferFailed
from arena.scale.worker import WorkerDied

ATTEMPTS = 3
"""Broadcasts of a version to an engine before it is killed."""
LOOPBACK = "127.0.0.1"
Result = TypeVar("Result")


class Broadcasts:
    """Broadcasts of a run. `patience` and `deadline` are the limits of its watchdog, in seconds."""

    def __init__(self, patience: float, deadline: float, note: Callable[[str], None]) -> None:
        self._patience, self._deadline, self._note = patience, deadline, note
        self._numbers = count(1)

    async def send(
        self, policy: str, shipment: Shipment, places: Sequence[EngineSlot]
    ) -> list[tuple[EngineSlot, WorkerDied]]:
        """Broadcast a version of a policy to these engines; return those that died or had to be killed.

        Waits until the engines have answered the requests that they have. Raises RanksLost, or WeightsGone.
        """
        waiting, dead = list(places), list[tuple[EngineSlot, WorkerDied]]()
        for place in waiting:
            place.torn.add(policy)
        for attempt in range(ATTEMPTS):
            failed: list[tuple[EngineSlot, Exception]] = []
            if waiting:
                failed = await self._try(policy, shipment, waiting, attempt == 0)
            dead += [(place, error) for place, error in failed if isinstance(error, WorkerDied)]
            waiting = [place for place, error in failed if not isinstance(error, WorkerDied)]
            for place, error in failed:
                if not isinstance(error, TransferFailed | WorkerDied):
                    raise error
                if isinstance(error, TransferFailed):
                    self._note(f"{place.name} did not get version {shipment.version} of '{policy}' ({error})")
        for place in waiting:
            if place.worker:
                place.worker.kill()
            dead.append((place, WorkerDied(f"{place.name} got no weights in {ATTEMPTS} broadcasts")))
        return dead

    async def _try(
        self, policy: str, shipment: Shipment, places: list[EngineSlot], may_share: bool
    ) -> list[tuple[EngineSlot, Exception]]:
        """Do one broadcast, and return the engines that did not get it, each with its error.

        Memory is shared only if all members are on one node, and `may_share`: containers may prevent it.
        """
        weights: RankWeights = shipment.weights
        incoming = _describe_incoming(weights)

        async def prepare(place: EngineSlot) -> ExpectedWeights:
            await place.wait_idle()
            own = incoming._replace(folder=await place.send_folder(incoming.folder))
            ready: ExpectedWeights = await place.ask("prepare", policy, own, label=f"preparing for {policy}")
            return ready

        expected, failed = await _gather_results(places, prepare)
        members = list(expected)
        if not members:
            return failed
        counts = [one.members for one in expected.values()]
        first = dict(zip(members, accumulate(counts, initial=1), strict=False))
        link = await self._link(weights, members, 1 + sum(counts), may_share)

        async def receive(place: EngineSlot) -> None:
            worker, where = place.worker, place.whereabouts
            assert where is not None
            own = link.of(first[place], link.address if link.address == LOOPBACK else where.address)
            await place.ask("receive", policy, shipment.version, own, label=f"receiving {policy}")
            if place.worker is worker:
                place.served[policy] = shipment
                place.torn.discard(policy)

        if not weights.is_current():
            raise WeightsGone(f"policy '{policy}' has learned since")
        receiving = asyncio.ensure_future(_gather_results(members, receive))
        try:
            await weights.send(expected[members[0]].layout, link)
        except BaseException:
            receiving.cancel()
            raise
        return failed + (await receiving)[1]

    async def _link(self, weights: RankWeights, members: Sequence[EngineSlot], size: int, may_share: bool) -> Link:
        """Return the link of rank 0 for a broadcast of `size` members in all to these engines."""
        ranks, engines = weights.ranks.places, [place.whereabouts for place in members if place.whereabouts]
        nodes = {rank.node for rank in ranks} | {engine.node for engine in engines}
        address = LOOPBACK if len(nodes) == 1 else ranks[0].address
        shares = may_share and len(nodes) == 1 and hasattr(os, "memfd_create")
        gpus = [ranks[0].gpu, *(one.gpu for one in engines)]
        nccl = all(gpus) and len({*gpus}) == len(gpus)
        shares = shares and not nccl
        return Link(
            key=f"broadcast-{next(self._numbers)}",
            address=address,
            port=await weights.ranks.meet(address),
            count=size,
            timeout=2 * self._patience,  # the watchdog finds a stopped process before
            patience=self._deadline,
            bucket=SHARED_BUCKET if shares else BUCKET,
            shared=shares,
            nccl=nccl,
            own=address,
        )


async def _gather_results(
    places: Sequence[EngineSlot], work: Callable[[EngineSlot], Awaitable[Result]]
) -> tuple[dict[EngineSlot, Result], list[tuple[EngineSlot, Exception]]]:
    """Do work for all engines at once; return the results, and the errors of those that failed."""
    answers = await asyncio.gather(*(work(place) for place in places), return_exceptions=True)
    both = list(zip(places, answers, strict=True))
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise answer
    done = {place: answer for place, answer in both if not isinstance(answer, BaseException)}
    return done, [(place, answer) for place, answer in both if isinstance(answer, Exception)]


def _describe_incoming(weights: RankWeights) -> IncomingWeights:
    origin, form = weights.origin, weights.form
    if form.scale is None:
        return IncomingWeights(origin.source, form.learned)
    return IncomingWeights(resolve_base(origin.source), form.learned, form.scale, origin.base_name)
