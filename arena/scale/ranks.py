"""The group of DeepSpeed ranks: started, asked together, and ended together.

What one of them cannot do, none can: a collective operation with a rank that is gone never ends well. So the first
failure ends the group, and the run starts another one from what was saved.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import RayError, RayTaskError

from arena.errors import DivergedError, GateError, RanksLost
from arena.scale.rank import Place, Rank

GRACE = 3.0
"""Seconds in which, after a rank's failure, Ray tells whether another one died: that is the cause then."""


class Ranks:
    """So many ranks, each a Ray actor; all of them hold every policy that is trained."""

    def __init__(self, actors: Sequence[Any], places: Sequence[Place], timeout: float) -> None:
        self.actors, self.places, self.timeout = actors, places, timeout
        self.lost: RanksLost | None = None
        """Why there is no group any more."""
        self._asking = threading.Lock()
        """Held while all are asked: they have to be asked in the same order."""

    @classmethod
    async def start(
        cls, options: Sequence[Mapping[str, Any]], timeout: float = 600.0, start_timeout: float = 120.0
    ) -> Self:
        """Start a rank for each of these options of Ray's actors, and have them meet.

        `timeout`, in seconds, is that of every collective operation: how long a rank may keep others waiting.
        RanksLost where one is not there after `start_timeout` seconds.
        """
        made = ray.remote(concurrency_groups={"signs": 1})(Rank)
        actors = [made.options(max_restarts=0, **given).remote() for given in options]
        ranks = cls(actors, [], start_timeout)
        threads = [max(1, int(given.get("num_cpus") or 1)) for given in options]
        try:
            ranks.places = await ranks._all("starting", "place", [()] * len(actors), first=start_timeout)
            alone = len({place.node for place in ranks.places}) == 1
            address = "127.0.0.1" if alone else ranks.places[0].address
            port = await actors[0].listen.remote(address)
            each = [(k, len(actors), address, port, timeout, own) for k, own in enumerate(threads)]
            await ranks._all("meeting", "join", each, first=start_timeout)
        except BaseException:
            ranks.kill()
            raise
        ranks.timeout = timeout
        return ranks

    def __len__(self) -> int:
        return len(self.actors)

    async def ask(self, where: str, what: str, *given: Any) -> list[Any]:
        """Have every rank do the same; their answers. `where` is for messages: the policy, and what it is about.

        GateError and DivergedError are decisions that all of them have taken. After any other error the group is gone:
        RanksLost where a rank died or hangs.
        """
        return await self._all(where, what, [given] * len(self.actors))

    async def _all(
        self, where: str, what: str, given: Sequence[tuple[Any, ...]], first: float | None = None
    ) -> list[Any]:
        """`ask`, each rank with arguments of its own; an answer has to come within `first` seconds, if given."""
        with self._asking:
            if self.lost:
                raise self.lost
            calls = [getattr(actor, what).remote(*own) for actor, own in zip(self.actors, given, strict=True)]
        answers = [asyncio.ensure_future(_answer(call)) for call in calls]
        try:
            return await self._settled(answers, where, first)
        finally:
            for answer in answers:
                answer.cancel()

    async def _settled(self, answers: Sequence[asyncio.Future[Any]], where: str, first: float | None) -> list[Any]:
        """All answers; they end together, and what does not come long after the first hangs."""
        _, waiting = await asyncio.wait(answers, timeout=first, return_when=asyncio.FIRST_COMPLETED)
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
        error = self._reason(errors, where)
        self.lost = error if isinstance(error, RanksLost) else RanksLost(f"{where}: {error}")
        self.kill()
        raise error

    def _reason(self, errors: Mapping[int, BaseException], where: str) -> BaseException:
        """Why the group is lost: a rank that died before one that failed by itself before one that does not answer."""
        for rank, error in errors.items():
            if isinstance(error, RayError):
                return RanksLost(f"{where}: rank {rank} of {len(self)} died ({_first_line(error)})")
        for error in errors.values():
            if not _of_collective(error):
                return error
        silent = [str(rank) for rank in range(len(self)) if rank not in errors]
        if silent:
            what = f"rank {' and '.join(silent)} of {len(self)} did not answer for {self.timeout:g} s"
            return RanksLost(f"{where}: {what}")
        rank, error = next(iter(errors.items()))
        return RanksLost(f"{where}: rank {rank} of {len(self)} lost the others ({_first_line(error)})")

    def kill(self) -> None:
        """End all processes at once, stopped ones too."""
        self.lost = self.lost or RanksLost("the ranks have been ended")
        for actor in self.actors:
            with suppress(Exception):  # it may be gone, or Ray may be
                ray.kill(actor)
        here = ray.get_runtime_context().get_node_id() if ray.is_initialized() else None
        for place in self.places:
            if place.node == here and _is_rank(place.pid):  # one that is stopped does not hear Ray
                with suppress(ProcessLookupError):
                    os.kill(place.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End all ranks; no call may follow."""
        await asyncio.to_thread(self.kill)


async def _answer(call: Any) -> Any:
    try:
        return await call
    except RayTaskError as error:
        raise error.cause from None


def _errors(answers: Sequence[asyncio.Future[Any]]) -> dict[int, BaseException]:
    """Errors of the ranks that have failed, by rank."""
    ended = {rank: answer.exception() for rank, answer in enumerate(answers) if answer.done()}
    return {rank: error for rank, error in ended.items() if error is not None}


def _of_collective(error: BaseException) -> bool:
    """Return True for the error of a rank whose collective operation another one did not take part in."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _is_rank(pid: int) -> bool:
    """Return True if that process is still a rank: its number may have passed to another one."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Rank")
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
