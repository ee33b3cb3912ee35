"""Driver's side of weight broadcasts from the trainer ranks to engines. The driver itself holds no weights.

An engine is up to date only after it has confirmed the broadcast. An engine that received only part of the weights gets
no requests until a retry succeeds, so no reply mixes two versions. After `ATTEMPTS` failures its process is killed.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, count
from typing import TypeVar

from agents.weights import resolve_base
from arena.scale.host import ExpectedWeights, IncomingWeights
from arena.scale.layout import BUCKET, SHARED_BUCKET
from arena.scale.slot import EngineSlot, Shipment
from arena.scale.tensors import RankWeights, WeightsGone
from arena.scale.transfer import Link, TransferFailed
from arena.scale.worker import WorkerDied

ATTEMPTS = 3
"""Maximum broadcasts of one version to an engine. If all fail, the engine is killed."""
LOOPBACK = "127.0.0.1"
Result = TypeVar("Result")


class Broadcasts:
    """Sender of broadcasts in a run. `patience` and `deadline` are the limits of the run's watchdog, in seconds."""

    def __init__(self, patience: float, deadline: float, note: Callable[[str], None]) -> None:
        self._patience, self._deadline, self._note = patience, deadline, note
        self._numbers = count(1)

    async def send(
        self, policy: str, shipment: Shipment, slots: Sequence[EngineSlot]
    ) -> list[tuple[EngineSlot, WorkerDied]]:
        """Broadcast a version of a policy to these engines. Returns the engines that died or were killed, with errors.

        Waits until the engines have answered their current batches. Raises RanksLost if a rank died, and WeightsGone if
        the policy was updated meanwhile.
        """
        waiting, failures = list(slots), list[tuple[EngineSlot, WorkerDied]]()
        for slot in waiting:
            slot.incomplete.add(policy)
        for attempt in range(ATTEMPTS):
            failed: list[tuple[EngineSlot, Exception]] = []
            if waiting:
                failed = await self._attempt(policy, shipment, waiting, attempt == 0)
            failures += [(slot, error) for slot, error in failed if isinstance(error, WorkerDied)]
            waiting = [slot for slot, error in failed if not isinstance(error, WorkerDied)]
            for slot, error in failed:
                if not isinstance(error, TransferFailed | WorkerDied):
                    raise error
                if isinstance(error, TransferFailed):
                    self._note(f"{slot.name} did not get version {shipment.version} of '{policy}' ({error})")
        for slot in waiting:
            if slot.worker:
                slot.worker.kill()
            failures.append((slot, WorkerDied(f"{slot.name} got no weights in {ATTEMPTS} broadcasts")))
        return failures

    async def _attempt(
        self, policy: str, shipment: Shipment, slots: list[EngineSlot], may_share: bool
    ) -> list[tuple[EngineSlot, Exception]]:
        """Attempt one broadcast. Returns the engines that did not receive it, each with its error.

        Shared memory is used if `may_share` is set and all members are on one node. Containers may prevent sharing.
        """
        weights: RankWeights = shipment.weights
        incoming = _describe_incoming(weights)

        async def prepare(slot: EngineSlot) -> ExpectedWeights:
            await slot.wait_idle()
            description = incoming._replace(folder=await slot.send_folder(incoming.folder))
            ready: ExpectedWeights = await slot.ask("prepare", policy, description, label=f"preparing for {policy}")
            return ready

        expected, failed = await _gather_results(slots, prepare)
        members = list(expected)
        if not members:
            return failed
        counts = [one.members for one in expected.values()]
        first = dict(zip(members, accumulate(counts, initial=1), strict=False))
        link = await self._link(weights, members, 1 + sum(counts), may_share)

        async def receive(slot: EngineSlot) -> None:
            worker, location = slot.worker, slot.location
            assert location is not None
            own_link = link.for_member(first[slot], link.address if link.address == LOOPBACK else location.address)
            await slot.ask("receive", policy, shipment.version, own_link, label=f"receiving {policy}")
            if slot.worker is worker:
                slot.served[policy] = shipment
                slot.incomplete.discard(policy)

        if not weights.is_current():
            raise WeightsGone(f"policy '{policy}' was updated since")
        receiving = asyncio.ensure_future(_gather_results(members, receive))
        try:
            await weights.send(expected[members[0]].layout, link)
        except BaseException:
            receiving.cancel()
            raise
        return failed + (await receiving)[1]

    async def _link(self, weights: RankWeights, members: Sequence[EngineSlot], size: int, may_share: bool) -> Link:
        """Return rank 0's connection settings for a broadcast to these engines. `size` counts all members."""
        ranks, engines = weights.ranks.locations, [slot.location for slot in members if slot.location]
        nodes = {rank.node for rank in ranks} | {engine.node for engine in engines}
        address = LOOPBACK if len(nodes) == 1 else ranks[0].address
        is_shared = may_share and len(nodes) == 1 and hasattr(os, "memfd_create")
        gpus = [ranks[0].gpu, *(engine.gpu for engine in engines)]
        nccl = all(gpus) and len({*gpus}) == len(gpus)
        is_shared = is_shared and not nccl
        return Link(
            key=f"broadcast-{next(self._numbers)}",
            address=address,
            port=await weights.ranks.get_broadcast_port(address),
            count=size,
            timeout=2 * self._patience,  # the watchdog kills a stopped process earlier
            patience=self._deadline,
            bucket=SHARED_BUCKET if is_shared else BUCKET,
            shared=is_shared,
            nccl=nccl,
            own_address=address,
        )


async def _gather_results(
    slots: Sequence[EngineSlot], work: Callable[[EngineSlot], Awaitable[Result]]
) -> tuple[dict[EngineSlot, Result], list[tuple[EngineSlot, Exception]]]:
    """Await `work` for all engines concurrently. Returns the results by engine, and (engine, error) of failed ones."""
    answers = await asyncio.gather(*(work(slot) for slot in slots), return_exceptions=True)
    paired = list(zip(slots, answers, strict=True))
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise answer
    results = {slot: answer for slot, answer in paired if not isinstance(answer, BaseException)}
    return results, [(slot, answer) for slot, answer in paired if isinstance(answer, Exception)]


def _describe_incoming(weights: RankWeights) -> IncomingWeights:
    """Return the description of the weights from which an engine prepares to receive them."""
    origin, description = weights.origin, weights.description
    if description.scale is None:
        return IncomingWeights(origin.source, description.learned)
    return IncomingWeights(resolve_base(origin.source), description.learned, description.scale, origin.base_name)
