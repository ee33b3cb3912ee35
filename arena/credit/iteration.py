"""Credit assignment of one iteration (measures, replay, rewards, advantages), and its state between iterations."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from agents.computing import compute
from arena.credit.asking import Measurer
from arena.credit.assign import assign, compute_turn_rewards, select
from arena.credit.batch import CreditedTrajectory, Floats, TurnBatch
from arena.credit.critics.base import Measures
from arena.credit.names import check_paid
from arena.credit.replay import Recall, Replay, record_recalls
from arena.credit.selection import count_dropped_deals
from arena.credit.settings import CreditSpec
from arena.parts.chance import generator
from arena.parts.part_config import PartConfig
from arena.parts.schedules import Clock
from arena.records import MatchRecord, Trajectory, trained_trajectories
from arena.store.reader import LogReader

MeasureFunction = Callable[[frozenset[str], Sequence[Trajectory]], Awaitable[Measures]]


class Credit(NamedTuple):
    """Trajectories of one iteration with their advantages: `credited` for its update, `recalled` for a separate one.

    `recalls` are records of all replayed trajectories, from which the credit can be recomputed with the log.
    """

    credited: list[CreditedTrajectory]
    recalled: list[CreditedTrajectory]
    recalls: Sequence[Recall] = ()


class CreditPipeline:
    """Credit pipeline of a run: computes advantages from an iteration's matches, and counts missing deals."""

    def __init__(
        self,
        rule: CreditSpec,
        replay: PartConfig | None,
        measure: MeasureFunction,
        log: LogReader,
        state: dict[str, Any],
        *,
        seed: int,
        iterations: int,
        deals: int,
        has_declared_rewards: bool = True,
        check: Callable[[Sequence[Trajectory]], None] = lambda trajectories: None,
        measurers: Mapping[str, Measurer] = MappingProxyType({}),
    ) -> None:
        """Restore the pipeline from `state`, as `CreditPipeline.state` returned it ({} for a new run).

        `seed`, `iterations` and `deals` (per iteration) are the run's. `measure` computes the named measures of
        trajectories. `has_declared_rewards` is True if all games declare their rewards; the names in the credit rule
        were then checked before the run. `check` raises StoreError for logged trajectories that no model can read.
        `measurers` compute the measures of stages that query models, by name.
        """
        self._check, self._measurers = check, measurers
        self._has_declared_rewards = has_declared_rewards
        self.rule, self._replay_part, self._compute_measures = rule, replay, measure
        self._seed, self._iterations, self._deals = seed, iterations, deals
        self._memory: dict[str, Any] = state.get("memory", {})
        self._replay_state: dict[str, Any] = state.get("replay", {})
        self._replay: Replay | None = replay(self._replay_state, log) if replay else None
        self._cached_measures: dict[tuple[str, str, str], Any] = {}
        """Measures of the current iteration, by (measure, match, seat)."""
        self._iteration = 0

    def state(self) -> dict[str, Any]:
        """Return the state of estimators, replay buffer and measurers, as JSON for the checkpoint."""
        measurer_states = {name: measurer.state() for name, measurer in self._measurers.items()}
        return {"memory": self._memory, "replay": self._replay_state} | (
            {"asked": measurer_states} if measurer_states else {}
        )

    def metrics(self, k: int) -> dict[str, dict[str, float]]:
        """Return iteration `k`'s metrics of the stages that query models, by measure name. Call it once, at the end."""
        return {name: measurer.report(k) for name, measurer in self._measurers.items()}

    async def count_missing_deals(self, k: int, records: Iterable[MatchRecord], deals: int) -> int:
        """Return how many more deals iteration `k` needs after `deals` deals with the matches `records`.

        Deals that selection would drop do not count. The result is rounded up and at least 0. The state of estimators
        and replay stays unchanged.
        """
        if not deals:
            return self._deals
        batch, rewards = await self._make_provisional_batch(k, trained_trajectories(records))
        if self._replay:
            batch, rewards = await self._make_provisional_batch(k, self._replay.inject(batch, rewards))
        dropped = count_dropped_deals(batch, select(batch, rewards, self.rule))
        return max(0, ceil(self._deals - deals + dropped - 1e-9))

    async def credit(self, k: int, records: Iterable[MatchRecord]) -> Credit:
        """Assign rewards and advantages to all turns of trained policies in iteration `k`.

        Updates the state of estimators and replay. If the games do not declare their rewards, iteration 1 raises
        ConfigError for a reward in the settings that was never paid.
        """
        trajectories = trained_trajectories(records)
        if k == 1 and not self._has_declared_rewards:
            check_paid(self.rule, self._replay_part, (await self._make_provisional_batch(k, trajectories))[0])
        if self._replay is None:
            batch = await self._make_batch(k, trajectories, self.rule.needs, self._memory)
            return Credit(await compute(assign, batch, self.rule), [])
        batch, rewards = await self._make_provisional_batch(k, trajectories)
        injected = self._replay.inject(batch, rewards)
        injected_batch = await self._make_batch(k, injected, self.rule.needs, self._memory)
        credited = await compute(assign, injected_batch, self.rule)
        replayed = self._replay.extra_trajectories(batch, rewards, credited)
        self._check([one.trajectory for one in replayed])
        replay_records = record_recalls(trajectories, injected, credited, replayed)
        if self._replay.has_own_step:
            return Credit(credited, replayed, replay_records)
        return Credit(credited + replayed, [], replay_records)

    async def _make_provisional_batch(self, k: int, trajectories: Sequence[Trajectory]) -> tuple[TurnBatch, Floats]:
        """Return a batch with its turn rewards. It has a copy of the estimators' state, which stays unchanged."""
        needs = frozenset[str]().union(*(part.needs for part in (*self.rule.stages, *self.rule.select)))
        batch = await self._make_batch(k, trajectories, needs, deepcopy(self._memory))
        return batch, compute_turn_rewards(batch, self.rule)

    async def _make_batch(
        self, k: int, trajectories: Sequence[Trajectory], needs: frozenset[str], memory: dict[str, Any]
    ) -> TurnBatch:
        self._check(trajectories)
        clock = Clock(k, self._iterations)
        rng = generator(self._seed, k, "credit")
        return TurnBatch(trajectories, clock, rng, memory, await self._get_measures(k, needs, trajectories))

    async def _get_measures(self, k: int, needs: frozenset[str], trajectories: Sequence[Trajectory]) -> Measures:
        """Return the measures in `needs` by name, with one array per trajectory.

        They are cached per iteration, except for those of stages that query models, which depend on all trajectories.
        """
        model_measures = {
            name: await self._measurers[name].measure(k, trajectories) for name in sorted(needs & {*self._measurers})
        }
        needs -= model_measures.keys()
        if k != self._iteration:
            self._iteration, self._cached_measures = k, {}
        new = [t for t in trajectories if any((name, t.match, t.seat) not in self._cached_measures for name in needs)]
        for name, arrays in (await self._compute_measures(needs, new) if new else {}).items():
            self._cached_measures |= {(name, t.match, t.seat): array for t, array in zip(new, arrays, strict=True)}
        return {
            name: [self._cached_measures[name, t.match, t.seat] for t in trajectories] for name in needs
        } | model_measures
