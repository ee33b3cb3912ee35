"""Sources of an iteration's matches for credit and learning."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from arena.credit.iteration import Crediting
from arena.league.matchmaking import Matchmaker
from arena.league.pool import Pool
from arena.play.adaptive import History
from arena.play.instructions import Instructions, write_instruction
from arena.play.lineup import Lineup
from arena.play.match import MatchPlan
from arena.play.orchestrator import check_losses, play_all
from arena.play.plans import branch_plans, iteration_plans
from arena.play.settings import PlaySpec
from arena.play.stragglers import Logged, Room, Stragglers, over, past_versions, plan_of, plan_row
from arena.play.trees import Tree, play_trees
from arena.play.watchers import TurnWatcher, Watcher
from arena.policies import PastVersions, Policies
from arena.records import MatchRecord
from arena.store.matchlog import MatchBatch
from arena.store.run import RunFolder


class Played(NamedTuple):
    """Matches played for an iteration: usable records, failed attempts, and finished matches of incomplete deals."""

    records: list[MatchRecord]
    """Finished matches of complete deals, for credit and statistics."""
    failures: list[MatchRecord]
    """Failed attempts."""
    left_out: list[MatchRecord] = []  # noqa: RUF012  never mutated
    """Finished matches of incomplete deals: another match of the deal was given up."""

    @classmethod
    def of(cls, finished: Iterable[MatchRecord], failures: list[MatchRecord]) -> Self:
        """Build from finished and failed records, separating the finished ones of deals that lost a match."""
        complete, left_out = list[MatchRecord](), list[MatchRecord]()
        lost = {(record.game, record.seed) for record in cls([], failures).given_up}
        for record in finished:
            (left_out if (record.game, record.seed) in lost else complete).append(record)
        return cls(complete, failures, left_out)

    @property
    def given_up(self) -> list[MatchRecord]:
        """Failed attempts that were the last at their matches, which were then given up."""
        return [record for record in self.failures if record.failure and record.failure.given_up]


Attempts = tuple[list[MatchRecord], list[MatchRecord]]
"""Finished matches and failed attempts."""


class Source(Protocol):
    """Source of an iteration's matches, which it writes to the run's own log before it returns them."""

    async def matches(self, k: int) -> Played:
        """Return the matches of iteration `k`, finished and failed. A second call returns the same ones."""

    async def close(self) -> None:
        """Cancel all matches that are still in progress."""


@dataclass(frozen=True)
class Play:
    """Source that plays matches between the run's policies, and against their opponents in the league."""

    run: RunFolder
    rule: PlaySpec
    policies: Policies
    pool: Pool
    matchmaker: Matchmaker | None
    lineup: Lineup
    crediting: Crediting
    watcher: Watcher
    iterations: int = 0
    """Number of iterations of the run."""
    late: list[MatchPlan] = field(default_factory=list)
    """Plans of unfinished matches of an earlier process, which no update has waited for."""
    history: History | None = None
    """Outcomes of deals, if `play.adaptive` is on."""
    instructions: Instructions | None = None
    """Populations of instructions, if roles have any."""

    async def matches(self, k: int) -> Played:
        """Play the matches of iteration `k` and their branches, and return them.

        Instructions that are due are renewed first. With `play.enough` < 1, not all deals are waited for. With
        `play.resample`, deals that selection drops are replaced by new ones. Raises PlayError if more matches are lost
        than usable.
        """
        await self._renew(k)
        if self.rule.enough < 1:
            taken = await self._stragglers.matches(k, self._plans(k))
            self._batch.flush()  # other matches are still in progress
            self.run.failures.flush()
            return Played.of(*taken)
        late = [over(plan, k, self.rule) for plan in self.late if plan.iteration == k - 1]
        (finished, failures), deals = await self.played(late) if late else ([], []), 0
        played = Played.of(finished, failures)
        for _ in range(1 + self.rule.resample):
            incomplete = len({(record.game, record.seed) for record in played.given_up})
            if not (due := await self.crediting.due(k, played.records, max(0, deals - incomplete))):
                break
            if not self.rule.overlaps:
                self.watcher.phase(k, "play")
            plans = self._plans(k, due, deals)
            own, failed = await (self._play_trees(plans) if self.rule.trees else self.played(plans))
            branched, failed_too = await self.played(branch_plans(self.rule, self.lineup.seed, k, plans, own))
            finished, deals = [*finished, *own, *branched], deals + due
            failures += [*failed, *failed_too]
            played = Played.of(finished, failures)
            check_losses(played.given_up, played.left_out, len(played.records), self.rule.attempts)
        return played

    async def _play_trees(self, plans: list[MatchPlan]) -> Attempts:
        """Play the plans of each deal as a tree, in which some matches branch from others (`play.trees`)."""
        assert self.rule.trees is not None
        deals: dict[int, list[MatchPlan]] = {}
        for plan in plans:
            deals.setdefault(plan.group, []).append(plan)
        vocabulary = {name: policy.frame.vocabulary for name, policy in self.policies.items()}
        trees = [Tree(deal, self.rule.trees, vocabulary, self.lineup.seed) for deal in deals.values()]
        return await play_trees(trees, self.played)

    def _plans(self, k: int, due: int | None = None, before: int = 0) -> list[MatchPlan]:
        tables, seed = self.lineup.tables, self.lineup.seed
        plans = iteration_plans(
            self.rule, seed, k, tables, self.policies, self.matchmaker, due, before, self.history, self.iterations
        )
        return self.instructions.assign(k, plans) if self.instructions else plans

    async def _renew(self, k: int) -> None:
        """Add a new instruction for each role that is due for one before iteration `k`, and notify the watcher."""
        if self.instructions is None:
            return
        for role in self.instructions.due(k):
            writer, written = self.instructions.rules[role].writer, ""
            if writer is not None:
                policy = self.lineup.policies[writer]
                written = await write_instruction(policy, self.lineup.engine, self.instructions, k, role)
            if text := self.instructions.add(k, role, written):
                self.watcher.note(f"iteration {k}: {role} tries the instruction {text!r}")

    async def played(self, plans: list[MatchPlan]) -> Attempts:
        """Play the plans, and return finished matches and failed attempts, each logged within a second of its end."""
        return await self._played(plans, lambda record: [record], must_finish=False)

    async def _played(self, plans: list[MatchPlan], logged: Logged, must_finish: bool = True) -> Attempts:
        """Play the plans as `played` does, but log the records that `logged` returns for each attempt that ends."""
        spec, failures = self.rule, list[MatchRecord]()
        log = self._batch if spec.overlaps else MatchBatch(self.run.log)
        past = self._past if spec.overlaps else PastVersions(self.policies, self.pool)
        on_turn = self.watcher.turn if isinstance(self.watcher, TurnWatcher) else None

        def play(plan: MatchPlan) -> Awaitable[MatchRecord]:
            return self.lineup.play(plan, past, on_turn)

        async def in_room(plan: MatchPlan) -> MatchRecord:
            async with self._room.place(plan):
                return await play(plan)

        def ended(record: MatchRecord) -> None:
            for one in logged(record):
                log.add(one)
                if one.status == "failed":
                    failures.append(one)
                    self.run.failures.add(one)
                self.watcher.match(one)

        try:
            of, at_once = (in_room, len(plans)) if spec.overlaps else (play, spec.in_flight)
            return await play_all(plans, of, ended, at_once, spec.attempts, must_finish), failures
        finally:
            log.flush()
            self.run.failures.flush()

    def past_versions(self, k: int) -> set[int]:
        """Return the numbers of past versions whose weights unfinished matches still need after iteration `k`."""
        if not self.rule.overlaps:
            return set()
        return self._room.past_versions() | past_versions(self._late(k))

    def learned(self, records: Iterable[MatchRecord]) -> None:
        """Update the history of deals and the scores of instructions, as far as these are on, from finished matches."""
        records = list(records)
        if self.history:
            self.history.add(records)
        if self.instructions:
            self.instructions.learned(records)

    def state(self, k: int) -> dict[str, Any]:
        """Return the JSON state for iteration k's checkpoint: plans still `late`, history of `deals`, instructions."""
        return {
            "late": [plan_row(plan) for plan in self._late(k)],
            "deals": self.history.state() if self.history else {},
            **({"instructions": self.instructions.state()} if self.instructions else {}),
        }

    async def close(self) -> None:
        """Cancel the matches in progress that no update has waited for."""
        if self.rule.enough < 1:
            await self._stragglers.close()

    def _late(self, k: int) -> list[MatchPlan]:
        return self._stragglers.late(k) if self.rule.enough < 1 else []

    # -- shared by the matches of several iterations that are in progress at once ------------------------------

    @cached_property
    def _batch(self) -> MatchBatch:
        return MatchBatch(self.run.log)

    @cached_property
    def _room(self) -> Room:
        return Room(self.rule.in_flight)

    @cached_property
    def _past(self) -> PastVersions:
        return PastVersions(self.policies, self.pool)

    @cached_property
    def _stragglers(self) -> Stragglers:
        return Stragglers(self.rule, self.iterations, self._played, self.late)


@dataclass(frozen=True)
class Ahead:
    """Source that plays up to `ahead` iterations in the background while earlier ones are learned.

    Iteration j's first match starts when iteration j - `ahead` is returned for learning, with the weights of that
    moment. So no reply is more than `ahead` versions older than the weights that learn from it.
    """

    source: Source
    ahead: int
    iterations: int
    """Number of iterations of the run."""
    watcher: Watcher
    _tasks: dict[int, asyncio.Task[Played]] = field(default_factory=dict)

    async def matches(self, k: int) -> Played:
        """Return the matches of iteration `k`, after starting those of up to `ahead` later iterations."""
        self.watcher.phase(k, "play")
        self._begin(k)
        played = await self._tasks.pop(k)
        for later in range(k + 1, min(k + self.ahead, self.iterations) + 1):
            self._begin(later)
        return played

    async def close(self) -> None:
        """Cancel the matches of later iterations, which a resumed run plays again, and close the underlying source."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.source.close()

    def _begin(self, k: int) -> None:
        if k not in self._tasks:
            self._tasks[k] = asyncio.create_task(self.source.matches(k))


def play_state(
    rule: PlaySpec, seed: int, state: Mapping[str, Any]
) -> tuple[list[MatchPlan], History | None, Instructions | None]:
    """Return unfinished plans, history and instructions from a `Play.state`, or {}; None for the ones that are off."""
    late = [plan_of(row) for row in state.get("late", [])]
    history = History(rule.adaptive, state.get("deals", {})) if rule.adaptive else None
    tried = Instructions(rule.instructions, seed, state.get("instructions", {})) if rule.instructions else None
    return late, history, tried
