"""Group of DeepSpeed ranks, which are started, called and killed together.

A collective operation cannot finish without all ranks. So the first failure ends the group, and the run starts a new
group from the last checkpoint.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from arena.errors import DivergedError, GateError, RanksLost
from arena.scale.rank import Rank, RankLocation
from arena.scale.shipping import FolderSender
from arena.scale.worker import WorkerDied

GRACE = 3.0
"""Seconds to wait after a rank's failure for Ray to report another rank's death, which would be the cause."""


class Ranks:
    """Group of DeepSpeed ranks, each a Ray actor with every trained policy; the first failure ends the whole group."""

    def __init__(self, actors: Sequence[Any], places: Sequence[RankLocation], timeout: float) -> None:
        self.actors, self.places, self.timeout = actors, places, timeout
        self.lost: RanksLost | None = None
        """Why the group has ended; None while it works."""
        self._shipping = FolderSender()
        self._asking = threading.Lock()
        """Held while calls are sent, because all ranks must get them in the same order."""

    @classmethod
    async def start(
        cls, options: Sequence[Mapping[str, Any]], timeout: float = 600.0, start_timeout: float = 120.0
    ) -> Self:
        """Start one rank per item of `options` (Ray actor options), form the process group, and return it.

        `timeout` is the maximum number of seconds that a rank waits for others in a collective operation. Raises
        RanksLost if a rank has not started after `start_timeout` seconds.
        """
        import ray

        for method in Rank.ping, Rank.meet:  # must be answered during an update, too
            ray.method(concurrency_group="signs")(method)
        made = ray.remote(concurrency_groups={"signs": 1})(Rank)
        actors = [made.options(max_restarts=0, **given).remote() for given in options]
        ranks = cls(actors, [], start_timeout)
        threads = [max(1, int(given.get("num_cpus") or 1)) for given in options]
        try:
            ranks.places = await ranks.ask_each("starting", "place", [()] * len(actors), first_timeout=start_timeout)
            alone = len({place.node for place in ranks.places}) == 1
            address = "127.0.0.1" if alone else ranks.places[0].address
            port = await actors[0].listen.remote(address)
            gpus = [place.gpu for place in ranks.places if place.gpu]
            shares = len({*gpus}) < len(gpus)
            each = [(k, len(actors), address, port, timeout, own, shares) for k, own in enumerate(threads)]
            await ranks.ask_each("meeting", "join", each, first_timeout=start_timeout)
        except BaseException:
            ranks.kill()
            raise
        ranks.timeout = timeout
        return ranks

    def __len__(self) -> int:
        return len(self.actors)

    async def ask(self, label: str, method: str, *given: Any) -> list[Any]:
        """Call a method of every rank and return the results in rank order. `label` names the call in messages.

        Raises GateError or DivergedError if every rank raises one of them; the group continues. Any other error kills
        the group. Raises RanksLost if a rank died or hangs, or if the group has ended.
        """
        return await self.ask_each(label, method, [given] * len(self.actors))

    async def ask_each(
        self, label: str, method: str, arguments: Sequence[tuple[Any, ...]], first_timeout: float | None = None
    ) -> list[Any]:
        """Call a method of every rank as `ask` does, with separate arguments per rank.

        `first_timeout` is the maximum number of seconds until the first result; None waits for ever.
        """
        with self._asking:
            if self.lost:
                raise self.lost
            calls = [getattr(actor, method).remote(*own) for actor, own in zip(self.actors, arguments, strict=True)]
        answers = [asyncio.ensure_future(_await_call(call)) for call in calls]
        try:
            return await self._collect_results(answers, label, first_timeout)
        finally:
            for answer in answers:
                answer.cancel()

    async def _collect_results(
        self, answers: Sequence[asyncio.Future[Any]], label: str, first_timeout: float | None
    ) -> list[Any]:
        """Wait for all calls and return their results in rank order.

        A rank hangs if it does not finish within `timeout` seconds after the first one. A failure is raised and kills
        the group, except that the group survives if all ranks raise GateError or DivergedError.
        """
        _, waiting = await asyncio.wait(answers, timeout=first_timeout, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            _, waiting = await asyncio.wait(answers, timeout=self.timeout, return_when=asyncio.FIRST_EXCEPTION)
        errors = _errors(answers)
        if not errors and not waiting:
            return [answer.result() for answer in answers]
        await asyncio.wait(answers, timeout=GRACE)
        errors = _errors(answers)
        decided = [error for error in errors.values() if isinstance(error, GateError | DivergedError)]
        if len(decided) == len(answers):
            raise decided[0]
        error = self._find_cause(errors, label)
        self.lost = error if isinstance(error, RanksLost) else RanksLost(f"{label}: {error}")
        self.kill()
        raise error

    def _find_cause(self, errors: Mapping[int, BaseException], label: str) -> BaseException:
        """Return the most likely cause of a failure: a rank's death, else a rank's own error, else silent ranks."""
        from ray.exceptions import RayError

        for rank, error in errors.items():
            if isinstance(error, RayError):
                return RanksLost(f"{label}: rank {rank} of {len(self)} died ({_first_line(error)})")
        for error in errors.values():
            if not _is_collective_error(error):
                return error
        silent = [str(rank) for rank in range(len(self)) if rank not in errors]
        if silent:
            ranks = f"rank {' and '.join(silent)} of {len(self)}"
            return RanksLost(f"{label}: {ranks} did not answer for {self.timeout:g} s")
        rank, error = next(iter(errors.items()))
        return RanksLost(f"{label}: rank {rank} of {len(self)} lost the others ({_first_line(error)})")

    async def send_folder(self, label: str, folder: Path) -> list[Path]:
        """Send the driver's model folder to all nodes that lack it. Returns its path on each rank's node."""
        try:
            nodes = {place.node: await self._shipping.send(place.node, folder) for place in self.places}
        except WorkerDied as error:
            self.lost = RanksLost(f"{label}: {error}")
            self.kill()
            raise self.lost from None
        return [nodes[place.node] for place in self.places]

    async def meet(self, address: str) -> int:
        """Return the port of this address at which rank 0 connects with engines. Answers during an update, too."""
        from ray.exceptions import RayError

        if self.lost:
            raise self.lost
        try:
            return int(await self.actors[0].meet.remote(address))
        except RayError as error:
            raise RanksLost(f"meeting engines: rank 0 died ({_first_line(error)})") from None

    def kill(self) -> None:
        """Kill all ranks at once, even suspended processes. Later calls raise RanksLost."""
        import ray

        self.lost = self.lost or RanksLost("the ranks have been ended")
        for actor in self.actors:
            with suppress(Exception):  # it may be gone, or Ray may be
                ray.kill(actor)
        here = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        for place in self.places:
            if place.node == here and _is_rank(place.pid):  # a suspended process does not react to Ray
                with suppress(ProcessLookupError):
                    os.kill(place.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Kill all ranks without blocking the event loop. No other call may follow."""
        await asyncio.to_thread(self.kill)


async def _await_call(call: Any) -> Any:
    from ray.exceptions import RayTaskError

    try:
        return await call
    except RayTaskError as error:
        raise error.cause from None


def _errors(answers: Sequence[asyncio.Future[Any]]) -> dict[int, BaseException]:
    """Return the exceptions of failed calls, by rank. Pending and successful calls are left out."""
    ended = {rank: answer.exception() for rank, answer in enumerate(answers) if answer.done()}
    return {rank: error for rank, error in ended.items() if error is not None}


def _is_collective_error(error: BaseException) -> bool:
    """Return True for an error of a collective operation, which follows from another rank's failure."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _is_rank(pid: int) -> bool:
    """Return True if the process with this id is still a rank. The system reuses process ids."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Rank")
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
