"""Group of DeepSpeed ranks, which are started, called and killed together.

A collective operation cannot finish without all ranks. The first failure therefore ends the group, and the run starts a
new group from the last checkpoint.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from agents.model_config import first_line
from arena.errors import DivergedError, GateError, RanksLost
from arena.scale.rank import Rank, RankLocation
from arena.scale.shipping import FolderSender
from arena.scale.worker import WorkerDied

GRACE_SECONDS = 3.0
"""Seconds to wait after a rank's failure for a report of another rank's death, which would be the cause."""


class Ranks:
    """Group of DeepSpeed ranks. Each is a Ray actor with every trained policy. The first failure ends the group."""

    def __init__(self, actors: Sequence[Any], locations: Sequence[RankLocation], timeout: float) -> None:
        self.actors, self.locations, self.timeout = actors, locations, timeout
        self.lost: RanksLost | None = None
        """Why the group has ended; None while it works."""
        self._sender = FolderSender()
        self._send_lock = threading.Lock()
        """Held while a call is sent to the ranks, because all must get the same calls in the same order."""

    @classmethod
    async def start(
        cls, options: Sequence[Mapping[str, Any]], timeout: float = 600.0, start_timeout: float = 120.0
    ) -> Self:
        """Start one rank per item of `options` (Ray's actor options), and return when all have joined the group.

        `timeout` is how many seconds a rank waits for others in a collective operation. Raises RanksLost if a rank has
        not started after `start_timeout` seconds.
        """
        import ray

        for method in Rank.ping, Rank.get_broadcast_port:  # must be answered during an update, too
            ray.method(concurrency_group="signs")(method)
        actor_class = ray.remote(concurrency_groups={"signs": 1})(Rank)
        actors = [actor_class.options(max_restarts=0, **options_of_rank).remote() for options_of_rank in options]
        ranks = cls(actors, [], start_timeout)
        threads = [max(1, int(options_of_rank.get("num_cpus") or 1)) for options_of_rank in options]
        try:
            ranks.locations = await ranks.ask_each(
                "starting", "locate", [()] * len(actors), first_timeout=start_timeout
            )
            is_one_node = len({location.node for location in ranks.locations}) == 1
            address = "127.0.0.1" if is_one_node else ranks.locations[0].address
            port = await actors[0].listen.remote(address)
            gpus = [location.gpu for location in ranks.locations if location.gpu]
            shares = len({*gpus}) < len(gpus)
            joint = (len(actors), address, port, timeout)
            arguments = [(k, *joint, thread_count, shares) for k, thread_count in enumerate(threads)]
            await ranks.ask_each("meeting", "join", arguments, first_timeout=start_timeout)
        except BaseException:
            ranks.kill()
            raise
        ranks.timeout = timeout
        return ranks

    def __len__(self) -> int:
        return len(self.actors)

    async def ask(self, label: str, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every rank and return the results in rank order. `label` names the call in messages.

        GateError and DivergedError are raised without harm to the group if every rank raises one of them. Any other
        error kills the group. Raises RanksLost if a rank died or hangs, or if the group has ended.
        """
        return await self.ask_each(label, method, [arguments] * len(self.actors))

    async def ask_each(
        self, label: str, method: str, arguments: Sequence[tuple[Any, ...]], first_timeout: float | None = None
    ) -> list[Any]:
        """Call a method of every rank as `ask` does, with separate arguments per rank.

        `first_timeout` is the maximum number of seconds until the first result; None waits without limit.
        """
        with self._send_lock:
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

        A rank counts as hung if it does not finish within `timeout` seconds after the first one. A failure is raised
        and kills the group, unless all ranks raise GateError or DivergedError.
        """
        _, waiting = await asyncio.wait(answers, timeout=first_timeout, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            _, waiting = await asyncio.wait(answers, timeout=self.timeout, return_when=asyncio.FIRST_EXCEPTION)
        errors = _errors(answers)
        if not errors and not waiting:
            return [answer.result() for answer in answers]
        await asyncio.wait(answers, timeout=GRACE_SECONDS)
        errors = _errors(answers)
        decided = [error for error in errors.values() if isinstance(error, GateError | DivergedError)]
        if len(decided) == len(answers):
            raise decided[0]
        error = self._find_cause(errors, label)
        self.lost = error if isinstance(error, RanksLost) else RanksLost(f"{label}: {error}")
        self.kill()
        raise error

    def _find_cause(self, errors: Mapping[int, BaseException], label: str) -> BaseException:
        """Return the most likely cause of a failure: a rank's death, a rank's own error, or ranks without an answer."""
        from ray.exceptions import RayError

        for rank, error in errors.items():
            if isinstance(error, RayError):
                return RanksLost(f"{label}: rank {rank} of {len(self)} died ({first_line(error)})")
        for error in errors.values():
            if not _is_collective_error(error):
                return error
        unanswered = [str(rank) for rank in range(len(self)) if rank not in errors]
        if unanswered:
            ranks = f"rank {' and '.join(unanswered)} of {len(self)}"
            return RanksLost(f"{label}: {ranks} did not answer for {self.timeout:g} s")
        rank, error = next(iter(errors.items()))
        return RanksLost(f"{label}: rank {rank} of {len(self)} lost the others ({first_line(error)})")

    async def send_folder(self, label: str, folder: Path) -> list[Path]:
        """Send a model folder of the driver to all nodes that lack it. Returns its path on each rank's node."""
        try:
            nodes = {location.node: await self._sender.send(location.node, folder) for location in self.locations}
        except WorkerDied as error:
            self.lost = RanksLost(f"{label}: {error}")
            self.kill()
            raise self.lost from None
        return [nodes[location.node] for location in self.locations]

    async def get_broadcast_port(self, address: str) -> int:
        """Return the port on this address at which engines connect to rank 0's store. Works during an update, too."""
        from ray.exceptions import RayError

        if self.lost:
            raise self.lost
        try:
            return int(await self.actors[0].get_broadcast_port.remote(address))
        except RayError as error:
            raise RanksLost(f"connecting to engines: rank 0 died ({first_line(error)})") from None

    def kill(self) -> None:
        """Kill all ranks at once, even suspended processes. Later calls raise RanksLost."""
        import ray

        self.lost = self.lost or RanksLost("the ranks were killed")
        for actor in self.actors:
            with suppress(Exception):  # the actor or Ray may be gone
                ray.kill(actor)
        own_node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        for location in self.locations:
            if location.node == own_node and _is_rank(location.pid):  # a suspended process does not react to Ray
                with suppress(ProcessLookupError):
                    os.kill(location.pid, signal.SIGKILL)

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
    errors = {rank: answer.exception() for rank, answer in enumerate(answers) if answer.done()}
    return {rank: error for rank, error in errors.items() if error is not None}


def _is_collective_error(error: BaseException) -> bool:
    """Return True for an error of a collective operation, which is a consequence of another rank's failure."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _is_rank(pid: int) -> bool:
    """Return True if the process with this id is still a rank, because the system reuses process ids."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Rank")
    except OSError:
        return False
