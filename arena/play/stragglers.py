"""Stragglers: deals whose matches an update did not wait for (`play.enough`); they count for the next update.

Nothing is thrown away and nothing is learned twice, so that over a run long matches count as much as short ones: an
update lacks the long matches of its own iteration and has those of the iteration before. A match that goes over is
logged with the iteration that learns from it, as deal `play.matches` + its own number. All matches of a deal go
together, since credit compares them. Every update waits for the stragglers of the one before.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Protocol, TypeVar

from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec
from arena.records import MatchRecord, Seating
from games.contracts import MatchId

Match = TypeVar("Match", MatchPlan, MatchRecord)
Logged = Callable[[MatchRecord], Iterable[MatchRecord]]
"""From a match that has just ended to those that are to be logged now, under the identities that they then have."""


class PlayPlans(Protocol):
    """Plays plans; every match that ends, failed ones included, is logged as `logged` says."""

    def __call__(self, plans: list[MatchPlan], logged: Logged) -> Awaitable[object]: ...


class Stragglers:
    """The rounds of matches of a run's iterations, of which each update takes what has ended."""

    def __init__(self, rule: PlaySpec, iterations: int, play: PlayPlans, late: Sequence[MatchPlan] = ()) -> None:
        """`late` are the plans of matches that an earlier process left unfinished: they are played again."""
        self.rule, self.iterations, self._play, self._late = rule, iterations, play, late
        self._rounds: dict[int, _Round] = {}

    async def matches(self, k: int, plans: list[MatchPlan]) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """The matches that iteration `k` learns from, and the attempts that failed among them."""
        before, self._late = self._before(k), ()
        own = self._rounds[k] = _Round(plans, self.rule, self._play)
        late = await before.remainder() if before else ([], [])
        share = self.rule.enough if k < self.iterations else 1.0
        records, failures = await own.taken(k, share)
        return [*late[0], *records], [*late[1], *failures]

    def late(self, k: int) -> list[MatchPlan]:
        """The plans of iteration `k`, which is committed now, that its update did not wait for."""
        self._rounds = {j: one for j, one in self._rounds.items() if j >= k}
        return self._rounds[k].late if k in self._rounds else []

    async def close(self) -> None:
        """End what is being played."""
        tasks = [one.task for one in self._rounds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _before(self, k: int) -> "_Round | None":
        if self._late and k - 1 not in self._rounds:
            again = self._rounds[k - 1] = _Round(list(self._late), self.rule, self._play)
            again.hand_over(k)
        return self._rounds.get(k - 1)


class _Round:
    """The matches of one iteration, deal by deal."""

    def __init__(self, plans: list[MatchPlan], rule: PlaySpec, play: PlayPlans) -> None:
        self.plans, self.rule = plans, rule
        self.late: list[MatchPlan] = []
        """Plans of the deals that were not waited for."""
        self._open = Counter(_deal(plan.identity, plan.group) for plan in plans)
        self._ended: dict[int, list[MatchRecord]] = {deal: [] for deal in self._open}
        self._failed: dict[int, list[MatchRecord]] = {deal: [] for deal in self._open}
        self._next: int | None = None
        """Iteration for which the deals that are still open count; None before the own one has learned."""
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._played(play))

    async def taken(self, k: int, share: float) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """The matches that have ended once that share of the deals has; the others go over to the next iteration."""
        least = ceil(share * len(self._ended) - 1e-9)
        await self._until(lambda: len(self._ended) - len(self._open) >= least)
        if not self._open:
            await self.task  # it may say that too many matches failed
        records, failures = self._out()
        self.hand_over(k + 1)
        return records, failures

    async def remainder(self) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """The matches that have gone over to the next iteration, once all of them have ended."""
        await self._until(lambda: self._next is not None and not self._open)
        await self.task
        return self._out()

    def hand_over(self, k: int) -> None:
        """Let the deals that are still open count for iteration `k`."""
        self.late = [plan for plan in self.plans if _deal(plan.identity, plan.group) in self._open]
        self._next = k
        self._notify()

    async def _played(self, play: PlayPlans) -> None:
        try:
            await play(self.plans, self._logged)
        finally:
            self._notify()

    def _logged(self, record: MatchRecord) -> list[MatchRecord]:
        """Return all attempts of the record's deal if it is over now, so that one iteration has them all.

        A bug ends the run: its match is logged at once.
        """
        deal = _deal(record.identity, record.group)
        (self._ended if record.status == "finished" else self._failed)[deal].append(record)
        if record.failure and record.failure.kind == "bug":
            return [self._renamed(record)]
        self._open[deal] -= record.status == "finished" or bool(record.failure and record.failure.given_up)
        if self._open[deal]:
            return []
        del self._open[deal]
        for attempts in (self._failed, self._ended):
            attempts[deal] = [self._renamed(one) for one in attempts[deal]]
        self._notify()
        return [*self._failed[deal], *self._ended[deal]]

    def _renamed(self, record: MatchRecord) -> MatchRecord:
        if self._next is None:
            return record
        return over(record, self._next, self.rule)

    def _out(self) -> tuple[list[MatchRecord], list[MatchRecord]]:
        """Everything of the deals that are over, in the order of their plans; it is handed out once."""
        over = [deal for deal in self._ended if deal not in self._open]
        records = sorted((r for deal in over for r in self._ended[deal]), key=lambda r: r.identity.deal)
        failures = [record for deal in over for record in self._failed[deal]]
        for deal in over:
            self._ended[deal], self._failed[deal] = [], []
        return records, failures

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if self.task.done():
                self.task.result()  # raises what ended the play
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed.clear()


def _deal(identity: MatchId, group: int) -> int:
    """The deal of a match within its iteration: its group's number, or its own where it is alone."""
    return group if group >= 0 else identity.deal


def over(match: Match, k: int, rule: PlaySpec) -> Match:
    """A match, or the plan of one, of the iteration before as one of iteration `k`."""
    identity = MatchId(k, rule.matches + match.identity.deal, match.identity.attempt)
    return replace(match, identity=identity, group=match.group + rule.deals if match.group >= 0 else -1)


def plan_row(plan: MatchPlan) -> dict[str, Any]:
    """A plan as JSON, for the checkpoint."""
    seats = {seat: seating.row() for seat, seating in plan.seats.items()}
    kept = {name: getattr(plan, name) for name in ("game", "options", "seed", "group", "stage", "capped")}
    place = {"iteration": plan.iteration, "deal": plan.identity.deal, "draws": list(plan.draws)}
    return {**place, **kept, "seats": seats}


def plan_of(row: Mapping[str, Any]) -> MatchPlan:
    """The plan of a row that `plan_row` made."""
    given = {name: value for name, value in row.items() if name not in ("iteration", "deal", "draws", "seats")}
    seats = {seat: Seating(**seating) for seat, seating in row["seats"].items()}
    identity = MatchId(row["iteration"], row["deal"])
    return MatchPlan(identity, seats=seats, draws=tuple(row["draws"]), **given)
