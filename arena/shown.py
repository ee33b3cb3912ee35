"""Play that is shown to a learner: by brains at its own tables, or by whoever did best in an earlier run.

Either way it comes in the words and tokens of the policy that is to learn it, under its roles: brains' acts are put
into the role's reply format, and matches of a log are played again from their deal, each reply as its text.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from arena.chance import generator
from arena.clock import Clock
from arena.config import ConfigError, Experiment
from arena.credit.assign import Credited
from arena.experiment import ShownSpec
from arena.learn.batches import Sample
from arena.learn.samples import samples_of
from arena.match import MatchPlan
from arena.planning import demonstration_plans
from arena.records import Trajectory, trajectories
from arena.seating import seatings
from arena.stage import Stage
from arena.store.files import StoreError
from arena.store.reader import RunReader


@dataclass(frozen=True)
class _Told:
    """A match of a log, and the seat in it that is worth imitating."""

    plan: MatchPlan
    seat: str
    row: dict[str, Any]


class Shown:
    """Where a run's shown samples come from; the same ones whenever the same iteration is asked for."""

    def __init__(self, experiment: Experiment, stage: Stage, learners: Iterable[str]) -> None:
        """ConfigError when a run that is to be shown has nothing for one of the learners."""
        self.experiment, self.stage, self.spec = experiment, stage, experiment.learn.shown
        self._best: dict[str, list[_Told]] = {}
        if self.spec and self.spec.run is not None:
            rows = _finished(self.spec.run)
            self._best = {learner: self._best_of(rows, self.spec, learner) for learner in learners}

    def samples(self, learner: str, clock: Clock) -> list[Sample]:
        """What `learn.shown` has for a policy in this iteration; none where its weight is 0."""
        if self.spec is None or not self.spec.weight(clock):
            return []
        if self.spec.brains:
            return self.by_brains(learner, clock.iteration, self.spec.brains, self.spec.matches)
        known, rng = self._best[learner], generator(self.experiment.seed, clock.iteration, "shown", learner)
        drawn = [known[i] for i in rng.permutation(len(known))[: self.spec.matches].tolist()]
        return self._samples(asyncio.run(self._again(drawn)))

    def by_brains(self, learner: str, k: int, brains: Sequence[str], matches: int) -> list[Sample]:
        """Matches between brains; iteration 0 is the warm start."""
        tables, policies = self.stage.tables, self.stage.house.policies
        plans = demonstration_plans(self.experiment, k, learner, matches, tables, policies)
        rng = generator(self.experiment.seed, k, "demonstrations")
        records = asyncio.run(self.stage.demonstrate(plans, brains, rng))
        return self._samples([t for record in records for t in trajectories(record) if t.policy == learner])

    async def _again(self, drawn: Sequence[_Told]) -> list[Trajectory]:
        found = []
        for told in drawn:
            record = await self.stage.retell(told.plan, told.seat, told.row)
            acts, before = [turn.action for turn in record.turns], [turn["action"] for turn in told.row["turns"]]
            if (acts, record.payoffs) != (before, told.row["payoffs"]):
                raise ConfigError(
                    f"learn.shown.run: match {record.id} there comes out otherwise when its replies are played again "
                    f"({record.reason or 'other acts or payoffs'}): its game or a reply format has changed since; "
                    "show a run with those of this one"
                )
            found += [t for t in trajectories(record) if t.seat == told.seat]
        return found

    def _best_of(self, rows: Sequence[dict[str, Any]], spec: ShownSpec, learner: str) -> list[_Told]:
        """Of each of the learner's seats at each table, the matches in which that seat was paid best."""
        found = []
        for table, held in zip(self.stage.tables, self.experiment.all_tables(), strict=True):
            game, holders = table.game, {seat: its.policy for seat, its in held.seats.items()}
            seats = seatings(table, holders, self.stage.house.policies)
            same = [row for row in rows if (row["game"], row["options"]) == (game.name, game.options)]
            for seat in (seat for seat, policy in holders.items() if policy == learner):
                ranked = sorted(same, key=lambda row, seat=seat: (-row["payoffs"][seat], row["id"]))  # type: ignore[misc]
                for row in ranked[: ceil(spec.best * len(same))]:
                    plan = MatchPlan(row["id"], row["iteration"], game.name, dict(game.options), row["seed"], seats)
                    found.append(_Told(plan, seat, row))
        if not found:
            games = " or ".join(sorted({f"{t.game.name} {t.game.options or ''}".strip() for t in self.stage.tables}))
            raise ConfigError(f"learn.shown.run: {spec.run} has no finished match of {games} to show '{learner}'")
        return found

    def _samples(self, shown: Sequence[Trajectory]) -> list[Sample]:
        heat = {r.role: r.sampling.temperature for table in self.stage.tables for r in table.roles.values()}
        credited = [Credited(t, np.zeros(len(t.turns)), np.ones(len(t.turns))) for t in shown]
        return [replace(sample, source="shown") for sample in samples_of(credited, heat)]


def _finished(run: str) -> list[dict[str, Any]]:
    """The finished matches of a run's log."""
    try:
        return [row for row in RunReader(run).matches(streams=False) if row["status"] == "finished"]
    except StoreError as error:
        raise ConfigError(f"learn.shown.run: {error}") from None
