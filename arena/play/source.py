"""Sources of matches: what gives an iteration the matches that credit and learning work on."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from arena.credit.iteration import Crediting
from arena.league.matchmaking import Matchmaker
from arena.league.pool import Pool
from arena.play.lineup import Lineup
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.play.plans import branch_plans, iteration_plans
from arena.play.settings import PlaySpec
from arena.play.watchers import TurnWatcher, Watcher
from arena.policies import PastVersions, Policies
from arena.records import MatchRecord
from arena.store.matchlog import MatchBatch
from arena.store.run import RunFolder


class Played(NamedTuple):
    """The matches of an iteration."""

    records: list[MatchRecord]
    """Those that finished."""
    failures: list[MatchRecord]
    """The attempts that failed."""


class Source(Protocol):
    """A source of matches; all of them are in the run's own log before they are returned."""

    async def matches(self, k: int) -> Played:
        """The matches of iteration `k`; the same ones if it is called again."""


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

    async def matches(self, k: int) -> Played:
        """All matches and their branches; with `play.resample`, others in place of what selection drops."""
        records, failures, deals = list[MatchRecord](), list[MatchRecord](), 0
        for _ in range(1 + self.rule.resample):
            if not (due := await self.crediting.due(k, records, deals)):
                break
            self.watcher.phase(k, "play")
            tables, seed = self.lineup.tables, self.lineup.seed
            plans = iteration_plans(self.rule, seed, k, tables, self.policies, self.matchmaker, due, deals)
            played, failed = await self.played(plans)
            branched, failed_too = await self.played(branch_plans(self.rule, seed, k, plans, played))
            records, deals = [*records, *played, *branched], deals + due
            failures += [*failed, *failed_too]
        return Played(records, failures)

    async def played(self, plans: list[MatchPlan]) -> Played:
        """The matches of these plans; each is in the log within a second of its end."""
        spec, log, failures = self.rule, MatchBatch(self.run.log), list[MatchRecord]()
        past = PastVersions(self.policies, self.pool)
        on_turn = self.watcher.turn if isinstance(self.watcher, TurnWatcher) else None

        def play(plan: MatchPlan) -> Awaitable[MatchRecord]:
            return self.lineup.play(plan, past, on_turn)

        def ended(record: MatchRecord) -> None:
            log.add(record)
            if record.status == "failed":
                failures.append(record)
                self.run.failures.add(record)
            self.watcher.match(record)

        try:
            return Played(await play_all(plans, play, ended, spec.in_flight, spec.attempts), failures)
        finally:
            log.flush()
            self.run.failures.flush()
