"""Room for matches: how many run at once where several iterations are played at the same time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count

from arena.league.pool import version_of
from arena.play.match import MatchPlan


class Room:
    """Places for so many matches at once; a match of an earlier iteration goes before one of a later."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        """By iteration and arrival."""
        self._arrivals = count()
        self._plans: dict[int, MatchPlan] = {}
        """Of matches that wait or run."""

    @asynccontextmanager
    async def place(self, plan: MatchPlan) -> AsyncIterator[None]:
        """A place for the match within the context."""
        number = next(self._arrivals)
        self._plans[number] = plan
        try:
            await self._enter(plan.iteration, number)
            try:
                yield
            finally:
                self._leave()
        finally:
            del self._plans[number]

    def past_versions(self) -> set[int]:
        """Numbers of the past versions that matches which wait or run will meet: their weights must stay."""
        return past_versions(self._plans.values())

    async def _enter(self, iteration: int, number: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heappush(self._queue, (iteration, number, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place came too late
            raise

    def _leave(self) -> None:
        while self._queue:
            turn = heappop(self._queue)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def past_versions(plans: Iterable[MatchPlan]) -> set[int]:
    """Numbers of the past versions, such as 12 of `shared@12`, that sit in these matches."""
    names = {seating.policy for plan in plans for seating in plan.seats.values()}
    return {parsed[1] for name in names if (parsed := version_of(name))}
