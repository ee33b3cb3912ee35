"""Stragglers (`play.enough`): deals that an update does not wait for and that the next update learns from.

Policies learn from each match once, so over a run long matches count as much as short ones: an update lacks the long
matches of its own iteration and has those of the iteration before. A late match is logged with the iteration that
learns from it, as deal `play.matches` + its own number. All matches of a deal stay together, because credit compares
them. Every update waits for the stragglers of the update before. `MatchSlots` limits the matches of overlapping
iterations.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Any, Protocol, TypeVar

from arena.league.pool import parse_version
from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec
from arena.records import MatchRecord, Seating
from games.contracts import MatchId

Match = TypeVar("Match", MatchPlan, MatchRecord)
SelectLogged = Callable[[MatchRecord], Iterable[MatchRecord]]
"""Function from a match that has just ended to the matches to log now, under their final identities."""


class PlayPlans(Protocol):
    """Protocol of a function that plays plans, and logs what `to_log` returns for each attempt that ends."""

    def __call__(self, plans: list[MatchPlan], to_log: SelectLogged) -> Awaitable[object]: ...


class Stragglers:
    """Play of iterations whose updates wait only for a share of the deals; the next update learns from the others."""

    def __init__(self, rule: PlaySpec, iterations: int, play: PlayPlans, late: Sequence[MatchPlan] = ()) -> None:
        """Prepare to play with `play`. `late` are plans that an earlier process left unfinished; they are replayed."""
        self.rule, self.iterations, self._play, self._late = rule, iterations, play, late
        self._rounds: dict[int, _Round] = {}

    async def matches(self, k: int, plans: list[MatchPlan]) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """Play the plans of iteration `k`, and return the matches that it learns from, and the failed attempts.

        They are the late matches of iteration k - 1 and those of the first deals of this iteration to end, a share of
        `play.enough`. The last iteration waits for all.
        """
        previous, self._late = self._previous_round(k), ()
        current = self._rounds[k] = _Round(plans, self.rule, self._play)
        late = await previous.take_remainder() if previous else ([], [])
        share = self.rule.enough if k < self.iterations else 1.0
        records, failures = await current.take(k, share)
        return [*late[0], *records], [*late[1], *failures]

    def late(self, k: int) -> list[MatchPlan]:
        """Return the plans of matches for which iteration k's update did not wait. Drops earlier iterations."""
        self._rounds = {j: one for j, one in self._rounds.items() if j >= k}
        return self._rounds[k].late if k in self._rounds else []

    async def close(self) -> None:
        """Cancel all matches in progress and wait until they have stopped."""
        tasks = [one.task for one in self._rounds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _previous_round(self, k: int) -> "_Round | None":
        if self._late and k - 1 not in self._rounds:
            resumed = self._rounds[k - 1] = _Round(list(self._late), self.rule, self._play)
            resumed.hand_over(k)
        return self._rounds.get(k - 1)


class _Round:
    """Matches of one iteration, grouped by deal. A task plays them in the background."""

    def __init__(self, plans: list[MatchPlan], rule: PlaySpec, play: PlayPlans) -> None:
        self.plans, self.rule = plans, rule
        self.late: list[MatchPlan] = []
        """Plans of the deals that the update did not wait for."""
        self._open = Counter(_deal_index(plan.identity, plan.group) for plan in plans)
        """Number of unfinished matches of each deal that has some."""
        self._ended: dict[int, list[MatchRecord]] = {deal: [] for deal in self._open}
        self._failed: dict[int, list[MatchRecord]] = {deal: [] for deal in self._open}
        self._next: int | None = None
        """Iteration that will learn from the open deals; None until this iteration's update takes its matches."""
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._play(play))

    async def take(self, k: int, share: float) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """Wait for a `share` of the deals, return their finished and failed matches, and pass on the rest to k + 1."""
        required = ceil(share * len(self._ended) - 1e-9)
        await self._wait_until(lambda: len(self._ended) - len(self._open) >= required)
        if not self._open:
            await self.task  # raises PlayError if too many matches failed
        records, failures = self._take_ended()
        self.hand_over(k + 1)
        return records, failures

    async def take_remainder(self) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """Wait for the deals passed on to the next iteration; return their finished matches and failed attempts."""
        await self._wait_until(lambda: self._next is not None and not self._open)
        await self.task
        return self._take_ended()

    def hand_over(self, k: int) -> None:
        """Assign all open deals to iteration `k`, which will learn from them."""
        self.late = [plan for plan in self.plans if _deal_index(plan.identity, plan.group) in self._open]
        self._next = k
        self._notify()

    async def _play(self, play: PlayPlans) -> None:
        try:
            await play(self.plans, self._select_logged)
        finally:
            self._notify()

    def _select_logged(self, record: MatchRecord) -> list[MatchRecord]:
        """Return all attempts of the record's deal if this was the last one, else [], so that one iteration logs them.

        A match that failed because of a bug is returned at once, because it ends the run.
        """
        deal = _deal_index(record.identity, record.group)
        (self._ended if record.status == "finished" else self._failed)[deal].append(record)
        if record.failure and record.failure.kind == "bug":
            return [self._renumber(record)]
        self._open[deal] -= record.status == "finished" or bool(record.failure and record.failure.given_up)
        if self._open[deal]:
            return []
        del self._open[deal]
        for attempts in (self._failed, self._ended):
            attempts[deal] = [self._renumber(one) for one in attempts[deal]]
        self._notify()
        return [*self._failed[deal], *self._ended[deal]]

    def _renumber(self, record: MatchRecord) -> MatchRecord:
        if self._next is None:
            return record
        return renumber(record, self._next, self.rule)

    def _take_ended(self) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """Take the finished matches, in the order of their plans, and the failed attempts of ended deals."""
        ended = [deal for deal in self._ended if deal not in self._open]
        records = sorted((r for deal in ended for r in self._ended[deal]), key=lambda r: r.identity.deal)
        failures = [record for deal in ended for record in self._failed[deal]]
        for deal in ended:
            self._ended[deal], self._failed[deal] = [], []
        return records, failures

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.task.done():
                self.task.result()  # raises the error that ended play
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed.clear()


def _deal_index(identity: MatchId, group: int) -> int:
    """Return the index of a match's deal in its iteration: the number of its group or, without one, its own."""
    return group if group >= 0 else identity.deal


def renumber(match: Match, k: int, rule: PlaySpec) -> Match:
    """Return a late match or plan of iteration k - 1 with a number of iteration `k`, after that iteration's own."""
    identity = MatchId(k, rule.matches + match.identity.deal, match.identity.attempt)
    return replace(match, identity=identity, group=match.group + rule.deals if match.group >= 0 else -1)


def plan_to_row(plan: MatchPlan) -> dict[str, Any]:
    """Return a plan as JSON for the checkpoint, without attempt, branch and source."""
    seats = {seat: seating.row() for seat, seating in plan.seats.items()}
    fields = {name: getattr(plan, name) for name in ("game", "options", "seed", "group", "stage", "capped")}
    place = {"iteration": plan.iteration, "deal": plan.identity.deal, "draws": list(plan.draws)}
    return {**place, **fields, "seats": seats}


def plan_from_row(row: Mapping[str, Any]) -> MatchPlan:
    """Return the plan, at its first attempt, from a row of `plan_to_row`."""
    fields = {name: value for name, value in row.items() if name not in ("iteration", "deal", "draws", "seats")}
    seats = {seat: Seating(**seating) for seat, seating in row["seats"].items()}
    identity = MatchId(row["iteration"], row["deal"])
    return MatchPlan(identity=identity, seats=seats, draws=tuple(row["draws"]), **fields)


class MatchSlots:
    """Slots for at most `size` matches in progress. Waiting matches of earlier iterations have priority."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        """Heap of waiting matches, by iteration and arrival."""
        self._arrivals = count()
        self._plans: dict[int, MatchPlan] = {}
        """Plans of matches that wait or run."""

    @asynccontextmanager
    async def hold(self, plan: MatchPlan) -> AsyncIterator[None]:
        """Wait for one of the limited match slots, and hold it for the duration of the context."""
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
        """Return the numbers of the past versions that waiting and running matches need."""
        return past_versions(self._plans.values())

    async def _enter(self, iteration: int, number: int) -> None:
        if self._free:
            self._free -= 1
            return
        admitted = asyncio.get_running_loop().create_future()
        heappush(self._queue, (iteration, number, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self._leave()  # release the slot assigned just before the cancellation
            raise

    def _leave(self) -> None:
        while self._queue:
            admitted = heappop(self._queue)[2]
            if not admitted.done():
                admitted.set_result(None)
                return
        self._free += 1


def past_versions(plans: Iterable[MatchPlan]) -> set[int]:
    """Return the numbers of the past versions, such as 12 of `shared@12`, that play in these matches."""
    names = {seating.policy for plan in plans for seating in plan.seats.values()}
    return {parsed[1] for name in names if (parsed := parse_version(name))}
