"""Sources of an iteration's matches for credit and learning."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from arena.errors import ConfigError
from arena.league.matchmaking import Matchmaker
from arena.league.pool import Pool
from arena.play.lineup import Lineup
from arena.play.match import MatchPlan
from arena.play.orchestrator import check_lost_matches, play_all
from arena.play.parts.base import Progress, RolloutPart, read_instructions
from arena.play.plans import plan_iteration
from arena.play.settings import PlaySpec
from arena.play.stragglers import (
    MatchSlots,
    SelectLogged,
    Stragglers,
    past_versions,
    plan_from_row,
    plan_to_row,
    renumber,
)
from arena.play.watchers import Watcher
from arena.policies import PastVersions, Policies
from arena.records import MatchRecord
from arena.store.matchlog import MatchBatch
from arena.store.run import RunFolder
from games.contracts import MatchId

MAX_MATCHES = 10**6
"""Maximum number of matches of an iteration. Their records are all held in memory."""


class PlayedMatches(NamedTuple):
    """Matches of an iteration: finished matches, failed attempts, and matches left out because of failures."""

    records: list[MatchRecord]
    """Finished matches of complete deals, for credit and statistics."""
    failures: list[MatchRecord]
    """Failed attempts."""
    left_out: list[MatchRecord] = []  # noqa: RUF012  never mutated
    """Finished matches of incomplete deals, of which another match was given up."""

    @classmethod
    def of(cls, finished: Iterable[MatchRecord], failures: list[MatchRecord]) -> Self:
        """Sort finished matches into those of complete and incomplete deals, given the failed attempts."""
        complete, left_out = list[MatchRecord](), list[MatchRecord]()
        lost = {(record.game, record.seed) for record in cls([], failures).given_up}
        for record in finished:
            (left_out if (record.game, record.seed) in lost else complete).append(record)
        return cls(complete, failures, left_out)

    @property
    def given_up(self) -> list[MatchRecord]:
        """Final failed attempts at matches that were given up."""
        return [record for record in self.failures if record.failure and record.failure.given_up]


Attempts = tuple[list[MatchRecord], list[MatchRecord]]
"""Finished matches and failed attempts."""


class Source(Protocol):
    """Protocol of a source of matches. It writes an iteration's matches to the run's log before it returns them."""

    async def matches(self, k: int) -> PlayedMatches:
        """Return the finished and failed matches of iteration `k`. A second call returns the same matches."""

    async def close(self) -> None:
        """Cancel all matches that are still in progress."""


@dataclass(frozen=True, kw_only=True)
class PlaySource:
    """Source that plays matches between the run's policies, and against opponents of its league."""

    run: RunFolder
    rule: PlaySpec
    policies: Policies
    pool: Pool
    matchmaker: Matchmaker | None
    lineup: Lineup
    watcher: Watcher
    parts: Sequence[RolloutPart] = ()
    """Rollout parts, in the order of `play.parts`."""
    iterations: int = 0
    """Number of iterations of the run."""
    late: list[MatchPlan] = field(default_factory=list)
    """Plans of late matches (`arena.play.stragglers`) that an earlier process left unfinished."""

    async def matches(self, k: int) -> PlayedMatches:
        """Play the matches of iteration `k` and those that parts add, and return them.

        Raises PlayError if more matches are lost than usable, and ConfigError if parts plan no match, or one twice.
        """
        if self.rule.enough < 1:
            attempts = await self._stragglers.matches(k, await self._make_plans(k))
            self._batch.flush()  # other matches are still in progress
            self.run.failures.flush()
            return PlayedMatches.of(*attempts)
        late = [renumber(plan, k, self.rule) for plan in self.late if plan.iteration == k - 1]
        finished, failures = await self.play(late) if late else ([], [])
        plans, deals, played = await self._make_plans(k), self.rule.deals, PlayedMatches.of(finished, failures)
        if not plans:
            raise ConfigError(f"play.parts: they left no match of iteration {k} to play")
        planned = set[MatchId]()
        while plans:
            _add_planned(plans, planned)
            more, failed = await self.play(plans)
            finished, failures = [*finished, *more], [*failures, *failed]
            played = PlayedMatches.of(finished, failures)
            progress = Progress(ended=finished, records=played.records, given_up=played.given_up, deals=deals)
            plans, deals = await self._expand(k, progress)
        check_lost_matches(played.given_up, played.left_out, len(played.records), self.rule.attempts)
        return played

    async def _make_plans(self, k: int, deals: int | None = None, offset: int = 0) -> list[MatchPlan]:
        """Plan `deals` deals (default: the iteration's) after `offset` earlier ones, and let the parts change them."""
        if not self.rule.overlaps:
            self.watcher.phase(k, "play")
        tables, seed = self.lineup.tables, self.lineup.seed
        plans = plan_iteration(self.rule, seed, k, tables, self.policies, self.matchmaker, deals, offset)
        for part in self.parts:
            plans = await part.plan(k, plans)
        return plans

    async def _expand(self, k: int, progress: Progress) -> tuple[list[MatchPlan], int]:
        """Return the matches that the first part with further plans adds, and the new number of planned deals.

        Returns [] if no part adds any.
        """
        for part in self.parts:
            more = await part.expand(k, progress)
            if progress.deals + more.deals > MAX_MATCHES:
                raise ConfigError(f"play.parts: iteration {k} would have more than {MAX_MATCHES:,} deals")
            new = await self._make_plans(k, more.deals, progress.deals) if more.deals else []
            if plans := [*more.plans, *new]:
                return plans, progress.deals + more.deals
        return [], progress.deals

    async def play(self, plans: list[MatchPlan]) -> Attempts:
        """Play the plans, and return finished matches and failed attempts. Logs each within a second of its end."""
        return await self._play_and_log(plans, lambda record: [record], must_finish=False)

    async def _play_and_log(self, plans: list[MatchPlan], to_log: SelectLogged, must_finish: bool = True) -> Attempts:
        """Play the plans as `play` does, but log for each attempt that ends the records that `to_log` returns."""
        spec, failures = self.rule, list[MatchRecord]()
        log = self._batch if spec.overlaps else MatchBatch(self.run.log)
        past = self._past if spec.overlaps else PastVersions(self.policies, self.pool)

        def play(plan: MatchPlan) -> Awaitable[MatchRecord]:
            return self.lineup.play(plan, past, self.watcher.turn)

        async def play_in_slot(plan: MatchPlan) -> MatchRecord:
            async with self._slots.hold(plan):
                return await play(plan)

        def log_end(record: MatchRecord) -> None:
            for logged in to_log(record):
                log.add(logged)
                if logged.status == "failed":
                    failures.append(logged)
                    self.run.failures.add(logged)
                self.watcher.match(logged)

        try:
            play_plan, at_once = (play_in_slot, len(plans)) if spec.overlaps else (play, spec.in_flight)
            return await play_all(plans, play_plan, log_end, at_once, spec.attempts, must_finish), failures
        finally:
            log.flush()
            self.run.failures.flush()

    def past_versions(self, k: int) -> set[int]:
        """Return the numbers of past versions whose weights unfinished matches still need after iteration `k`."""
        if not self.rule.overlaps:
            return set()
        return self._slots.past_versions() | past_versions(self._late(k))

    def observe(self, k: int, records: Sequence[MatchRecord]) -> None:
        """Pass iteration `k`'s finished matches to all rollout parts."""
        for part in self.parts:
            part.observe(k, records)

    def metrics(self, records: Sequence[MatchRecord]) -> dict[str, dict[str, float]]:
        """Return the parts' sections of an iteration's metrics, computed from its matches that are not branches."""
        unbranched = [record for record in records if record.identity.parent is None]
        return {name: section for part in self.parts for name, section in part.metrics(unbranched).items()}

    def read_instructions(self) -> dict[str, str]:
        """Return the texts that end roles' system prompts outside of training at present, by role."""
        return read_instructions(self.rule.parts, [part.state() for part in self.parts])

    def state(self, k: int) -> dict[str, Any]:
        """Return the state for the checkpoint of iteration `k`: unfinished plans and the parts' states."""
        late = [plan_to_row(plan) for plan in self._late(k)]
        return {"late": late, "parts": [part.state() for part in self.parts]}

    async def close(self) -> None:
        """Cancel the late matches that are still in progress."""
        if self.rule.enough < 1:
            await self._stragglers.close()

    def _late(self, k: int) -> list[MatchPlan]:
        return self._stragglers.late(k) if self.rule.enough < 1 else []

    # -- shared by the matches of several iterations that are in progress at once ------------------------------

    @cached_property
    def _batch(self) -> MatchBatch:
        return MatchBatch(self.run.log)

    @cached_property
    def _slots(self) -> MatchSlots:
        return MatchSlots(self.rule.in_flight)

    @cached_property
    def _past(self) -> PastVersions:
        return PastVersions(self.policies, self.pool)

    @cached_property
    def _stragglers(self) -> Stragglers:
        return Stragglers(self.rule, self.iterations, self._play_and_log, self.late)


@dataclass(frozen=True)
class AheadSource:
    """Source that plays up to `ahead` iterations in the background while policies learn from earlier ones.

    The first match of iteration j starts when iteration j - `ahead` is returned for learning, with the weights of that
    moment. So no reply is more than `ahead` versions older than the weights that learn from it.
    """

    source: Source
    ahead: int
    iterations: int
    """Number of iterations of the run."""
    watcher: Watcher
    _tasks: dict[int, asyncio.Task[PlayedMatches]] = field(default_factory=dict)

    async def matches(self, k: int) -> PlayedMatches:
        """Return the matches of iteration `k`, after starting those of up to `ahead` later iterations."""
        self.watcher.phase(k, "play")
        self._start(k)
        played = await self._tasks.pop(k)
        for later in range(k + 1, min(k + self.ahead, self.iterations) + 1):
            self._start(later)
        return played

    async def close(self) -> None:
        """Cancel the matches of later iterations, which a resumed run plays again, and close the underlying source."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.source.close()

    def _start(self, k: int) -> None:
        if k not in self._tasks:
            self._tasks[k] = asyncio.create_task(self.source.matches(k))


def _add_planned(plans: Iterable[MatchPlan], identities: set[MatchId]) -> None:
    """Add the plans' identities to `identities`. Raises ConfigError for a duplicate, or for more than `MAX_MATCHES`."""
    for plan in plans:
        if plan.identity in identities:
            raise ConfigError(f"play.parts: match {plan.id} is planned twice")
        identities.add(plan.identity)
    if len(identities) > MAX_MATCHES:
        raise ConfigError(f"play.parts: more than {MAX_MATCHES:,} matches are planned in one iteration")


def load_parts(parts: Sequence[RolloutPart], state: Mapping[str, Any]) -> list[MatchPlan]:
    """Restore the parts from a checkpoint's `PlaySource.state`, which may be {}, and return the unfinished plans."""
    for part, saved in zip(parts, state.get("parts", ()), strict=bool(state)):
        if saved is not None:
            part.load(saved)
    return [plan_from_row(row) for row in state.get("late", [])]
