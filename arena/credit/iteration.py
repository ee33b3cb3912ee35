"""Credit of one iteration (measures, replay, rewards, advantages) and its state between iterations."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from agents.computing import compute
from arena.credit.asking import Asking
from arena.credit.assign import assign, select, turn_rewards
from arena.credit.batch import Credited, Floats, TurnBatch
from arena.credit.critics.base import Measures
from arena.credit.names import check_came
from arena.credit.replay import Recall, Replay, recalls
from arena.credit.selection import lost_deals
from arena.credit.settings import CreditSpec
from arena.parts.chance import generator
from arena.parts.chosen import Chosen
from arena.parts.schedules import Clock
from arena.records import MatchRecord, Trajectory, trained_trajectories
from arena.store.reader import LogReader

Measured = Callable[[frozenset[str], Sequence[Trajectory]], Awaitable[Measures]]


class Credit(NamedTuple):
    """Trajectories with advantages of one iteration: `credited` for its update, `recalled` for one of their own.

    `recalls` records everything that replay brought back, so that the credit can be recomputed from the log.
    """

    credited: list[Credited]
    recalled: list[Credited]
    recalls: Sequence[Recall] = ()


class Crediting:
    """Credit pipeline of a run: `credit` turns an iteration's matches into advantages, `due` counts missing deals."""

    def __init__(
        self,
        rule: CreditSpec,
        replay: Chosen | None,
        measured: Measured,
        log: LogReader,
        state: dict[str, Any],
        *,
        seed: int,
        iterations: int,
        deals: int,
        declared: bool = True,
        check: Callable[[Sequence[Trajectory]], None] = lambda trajectories: None,
        asking: Mapping[str, Asking] = MappingProxyType({}),
    ) -> None:
        """Restore the pipeline from `state`, which an earlier `Crediting.state` returned ({} at the beginning).

        `seed`, `iterations` and `deals` (per iteration) are the run's. `measured` computes the named measures of
        trajectories. `declared`: the games declare their rewards, so names in the credit rule were checked before the
        run. `check` raises StoreError for logged trajectories that no model can read. `asking` computes measures that
        need replies of models, by their names.
        """
        self._check, self._asking = check, asking
        self._declared = declared
        self.rule, self._chosen, self._measured = rule, replay, measured
        self._seed, self._iterations, self._deals = seed, iterations, deals
        self._memory: dict[str, Any] = state.get("memory", {})
        self._past: dict[str, Any] = state.get("replay", {})
        self._replay: Replay | None = replay(self._past, log) if replay else None
        self._known: dict[tuple[str, str, str], Any] = {}
        """Measures of the current iteration by measure, match and seat."""
        self._iteration = 0

    def state(self) -> dict[str, Any]:
        """Return the state of estimators, replay buffer and asking stages, as JSON for the checkpoint."""
        asked = {name: asking.state() for name, asking in self._asking.items()}
        return {"memory": self._memory, "replay": self._past} | ({"asked": asked} if asked else {})

    def metrics(self, k: int) -> dict[str, dict[str, float]]:
        """End iteration `k` of the stages that ask, and return their sections of its metrics, by name."""
        return {name: asking.report(k) for name, asking in self._asking.items()}

    async def due(self, k: int, records: Iterable[MatchRecord], deals: int) -> int:
        """Return how many more deals iteration `k` needs after the `deals` played ones, whose matches are `records`.

        Deals that selection would drop do not count; the result is rounded up and at least 0. Leaves the state of
        estimators and replay unchanged.
        """
        wanted = self._deals
        if not deals:
            return wanted
        batch, rewards = await self._provisional(k, trained_trajectories(records))
        if self._replay:
            batch, rewards = await self._provisional(k, self._replay.inject(batch, rewards))
        lost = lost_deals(batch, select(batch, rewards, self.rule))
        return max(0, ceil(wanted - deals + lost - 1e-9))

    async def credit(self, k: int, records: Iterable[MatchRecord]) -> Credit:
        """Assign rewards and advantages to all turns that trained policies took in iteration `k`.

        Updates the state of estimators and replay. Raises ConfigError in iteration 1 if the settings name a reward that
        nothing paid and the games do not declare their rewards.
        """
        trajectories = trained_trajectories(records)
        if k == 1 and not self._declared:
            check_came(self.rule, self._chosen, (await self._provisional(k, trajectories))[0])
        if self._replay is None:
            batch = await self._batch(k, trajectories, self.rule.needs, self._memory)
            return Credit(await compute(assign, batch, self.rule), [])
        batch, rewards = await self._provisional(k, trajectories)
        injected = self._replay.inject(batch, rewards)
        whole = await self._batch(k, injected, self.rule.needs, self._memory)
        credited = await compute(assign, whole, self.rule)
        replayed = self._replay.extra_trajectories(batch, rewards, credited)
        self._check([one.trajectory for one in replayed])
        replay_records = recalls(trajectories, injected, credited, replayed)
        if self._replay.own_step:
            return Credit(credited, replayed, replay_records)
        return Credit(credited + replayed, [], replay_records)

    async def _provisional(self, k: int, trajectories: Sequence[Trajectory]) -> tuple[TurnBatch, Floats]:
        """Return the trajectories' batch and turn rewards. The batch has a copy of the estimator state."""
        needs = frozenset[str]().union(*(part.needs for part in (*self.rule.stages, *self.rule.select)))
        batch = await self._batch(k, trajectories, needs, deepcopy(self._memory))
        return batch, turn_rewards(batch, self.rule)

    async def _batch(
        self, k: int, trajectories: Sequence[Trajectory], needs: frozenset[str], memory: dict[str, Any]
    ) -> TurnBatch:
        self._check(trajectories)
        clock = Clock(k, self._iterations)
        rng = generator(self._seed, k, "credit")
        return TurnBatch(trajectories, clock, rng, memory, await self._measures(k, needs, trajectories))

    async def _measures(self, k: int, needs: frozenset[str], trajectories: Sequence[Trajectory]) -> Measures:
        """Return the measures in `needs` by name, one array per trajectory; each is computed once per iteration.

        Those of stages that ask depend on all trajectories, and are computed again for them.
        """
        asked = {name: await self._asking[name].measure(k, trajectories) for name in sorted(needs & {*self._asking})}
        needs -= asked.keys()
        if k != self._iteration:
            self._iteration, self._known = k, {}
        new = [t for t in trajectories if any((name, t.match, t.seat) not in self._known for name in needs)]
        for name, arrays in (await self._measured(needs, new) if new else {}).items():
            self._known |= {(name, t.match, t.seat): array for t, array in zip(new, arrays, strict=True)}
        return {name: [self._known[name, t.match, t.seat] for t in trajectories] for name in needs} | asked
