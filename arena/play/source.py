"""Sources of matches: what gives an iteration the matches that credit and learning work on."""

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

from arena.credit.iteration import Crediting
from arena.league.matchmaking import Matchmaker
from arena.league.pool import Pool
from arena.play.adaptive import History
from arena.play.instructions import Instructions
from arena.play.lineup import Lineup
from arena.play.match import MatchPlan
from arena.play.orchestrator import check_losses, play_all
from arena.play.plans import branch_plans, iteration_plans
from arena.play.reflection import reflected
from arena.play.room import Room, past_versions
from arena.play.settings import PlaySpec
from arena.play.stragglers import Logged, Stragglers, over, plan_of, plan_row
from arena.play.trees import Tree, grown
from arena.play.watchers import TurnWatcher, Watcher
from arena.policies import PastVersions, Policies
from arena.records import MatchRecord
from arena.store.matchlog import MatchBatch
from arena.store.run import RunFolder


class Played(NamedTuple):
    """The matches of an iteration."""

    records: list[MatchRecord]
    """Finished matches of complete deals: those for credit and statistics."""
    failures: list[MatchRecord]
    """Failed attempts."""
    left_out: list[MatchRecord] = []  # noqa: RUF012  replaced, never changed
    """Finished matches of deals with a match that was given up."""

    @classmethod
    def of(cls, finished: Iterable[MatchRecord], failures: list[MatchRecord]) -> Self:
        """Divide the finished matches by whether their deal is complete."""
        kept, left_out = list[MatchRecord](), list[MatchRecord]()
        lost = {(record.game, record.seed) for record in cls([], failures).given_up}
        for record in finished:
            (left_out if (record.game, record.seed) in lost else kept).append(record)
        return cls(kept, failures, left_out)

    @property
    def given_up(self) -> list[MatchRecord]:
        """The last attempts at matches that were given up."""
        return [record for record in self.failures if record.failure and record.failure.given_up]


Attempts = tuple[list[MatchRecord], list[MatchRecord]]
"""Finished matches, and failed attempts."""


class Source(Protocol):
    """A source of matches; all of them are in the run's own log before they are returned."""

    async def matches(self, k: int) -> Played:
        """The matches of iteration `k`; the same ones if it is called again."""

    async def close(self) -> None:
        """End what is still being played."""


@dataclass(frozen=True)
class Play:
    """A source that plays: the run's policies among themselves and against their league."""

    run: RunFolder
    rule: PlaySpec
    policies: Policies
    pool: Pool
    matchmaker: Matchmaker | None
    lineup: Lineup
    crediting: Crediting
    watcher: Watcher
    iterations: int = 0
    """The run's."""
    late: list[MatchPlan] = field(default_factory=list)
    """Plans of matches that an update did not wait for and that no process finished."""
    history: History | None = None
    """How deals went, where play goes by that."""
    instructions: Instructions | None = None
    """Populations of instructions, where roles have some."""

    async def matches(self, k: int) -> Played:
        """All matches and their branches; with `play.resample`, others in place of what selection drops."""
        await self._renew(k)
        if self.rule.enough < 1:
            taken = await self._stragglers.matches(k, self._plans(k))
            self._batch.flush()  # others of the same rounds go on
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
            whole, failed = await (self._grown(plans) if self.rule.trees else self.played(plans))
            branched, failed_too = await self.played(branch_plans(self.rule, self.lineup.seed, k, plans, whole))
            finished, deals = [*finished, *whole, *branched], deals + due
            failures += [*failed, *failed_too]
            played = Played.of(finished, failures)
            check_losses(played.given_up, played.left_out, len(played.records), self.rule.attempts)
        return played

    async def _grown(self, plans: list[MatchPlan]) -> Attempts:
        """The matches of these plans, those of each deal as a tree."""
        assert self.rule.trees is not None
        deals: dict[int, list[MatchPlan]] = {}
        for plan in plans:
            deals.setdefault(plan.group, []).append(plan)
        vocabulary = {name: policy.frame.vocabulary for name, policy in self.policies.items()}
        trees = [Tree(deal, self.rule.trees, vocabulary, self.lineup.seed) for deal in deals.values()]
        return await grown(trees, self.played)

    def _plans(self, k: int, due: int | None = None, before: int = 0) -> list[MatchPlan]:
        tables, seed = self.lineup.tables, self.lineup.seed
        plans = iteration_plans(
            self.rule, seed, k, tables, self.policies, self.matchmaker, due, before, self.history, self.iterations
        )
        return self.instructions.dealt(k, plans) if self.instructions else plans

    async def _renew(self, k: int) -> None:
        """Try a new instruction with each role that is due for one."""
        if self.instructions is None:
            return
        for role in self.instructions.due(k):
            if text := self.instructions.add(k, role, await reflected(self.lineup, self.instructions, k, role)):
                self.watcher.note(f"iteration {k}: {role} tries the instruction {text!r}")

    async def played(self, plans: list[MatchPlan]) -> Attempts:
        """Play these plans; each match is in the log within a second of its end."""
        return await self._played(plans, lambda record: [record], must_finish=False)

    async def _played(self, plans: list[MatchPlan], logged: Logged, must_finish: bool = True) -> Attempts:
        """Play these plans; when a match ends, what `logged` returns is in the log within a second."""
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
        """Numbers of the past versions whose weights matches still need after iteration `k`."""
        if not self.rule.overlaps:
            return set()
        return self._room.past_versions() | past_versions(self._late(k))

    def learned(self, records: Iterable[MatchRecord]) -> None:
        """Remember how the deals of these matches went, and their instructions, where play goes by that."""
        records = list(records)
        if self.history:
            self.history.add(records)
        if self.instructions:
            self.instructions.learned(records)

    def state(self, k: int) -> dict[str, Any]:
        """State for the checkpoint of iteration `k`, as JSON."""
        return {
            "late": [plan_row(plan) for plan in self._late(k)],
            "deals": self.history.state() if self.history else {},
            **({"instructions": self.instructions.state()} if self.instructions else {}),
        }

    async def close(self) -> None:
        """End matches that no update has waited for."""
        if self.rule.enough < 1:
            await self._stragglers.close()

    def _late(self, k: int) -> list[MatchPlan]:
        return self._stragglers.late(k) if self.rule.enough < 1 else []

    # -- what matches of several iterations share where they are played at the same time ---------------------

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


def play_state(
    rule: PlaySpec, seed: int, state: Mapping[str, Any]
) -> tuple[list[MatchPlan], History | None, Instructions | None]:
    """Unfinished matches' plans, the history of deals, and instructions, as a checkpoint's `Play.state` has, or {}."""
    late = [plan_of(row) for row in state.get("late", [])]
    history = History(rule.adaptive, state.get("deals", {})) if rule.adaptive else None
    tried = Instructions(rule.instructions, seed, state.get("instructions", {})) if rule.instructions else None
    return late, history, tried
