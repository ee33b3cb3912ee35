"""What will be played: the matches of an iteration, from the run's tables, its league, and its seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from agents.policy import Policy
from arena.chance import generator, number
from arena.config.experiment import Experiment, TableSpec
from arena.config.layers import apportion
from arena.league.matchmaking import Matchmaker
from arena.play.branches import Branch
from arena.play.lineup import seatings
from arena.play.match import MatchPlan
from arena.play.tables import Table
from arena.records import MatchRecord, Seating


def iteration_plans(
    experiment: Experiment,
    k: int,
    tables: Sequence[Table],
    policies: Mapping[str, Policy],
    matchmaker: Matchmaker | None,
    deals: int | None = None,
    before: int = 0,
) -> list[MatchPlan]:
    """The matches of iteration `k`, table by table, each table's by its share; the league's opponents among them.

    Or as many more `deals` as are due when `before` have been planned already.
    """
    rng = generator(experiment.seed, k, "league", *([f"{before}"] if before else []))

    def seats(spec: TableSpec, table: Table, count: int) -> list[dict[str, Seating]]:
        configured = _configured(spec, table, policies)
        if matchmaker is None:
            return [configured] * count
        return matchmaker.arrange(k, table.game.name, configured, count, policies, rng)

    group = experiment.play.group

    specs = experiment.all_tables()
    counts = apportion(experiment.play.deals if deals is None else deals, [spec.share for spec in specs])
    counted = zip(specs, tables, counts, strict=True)
    dealt = [(t, s) for spec, t, n in counted for s in seats(spec, t, n)]
    seeds = _from_pool(experiment, k, before, len(dealt)) if experiment.play.pool else None
    return _plans(experiment.seed, k, dealt, group, before, seeds)


def branch_plans(
    experiment: Experiment, k: int, plans: Sequence[MatchPlan], records: Sequence[MatchRecord]
) -> list[MatchPlan]:
    """For each match that was played, `play.branch` more that part from it at different turns of its learners.

    The turns are drawn uniformly; a match with fewer of them is branched at each, with `branch_at: last` at its last.
    """
    planned = {plan.id: plan for plan in plans}
    rng = generator(experiment.seed, k, "branch", *list(planned)[:1])
    branches = []
    for record in records:
        own = [turn.index for turn in record.turns if record.seats[turn.seat].trained]
        own = own[-1:] if experiment.play.branch_at == "last" else own
        plan = planned[record.id.removesuffix(f"-r{record.attempt}")]
        for turn in sorted(rng.permutation(own)[: experiment.play.branch].tolist()):
            branch = Branch(record, int(turn))
            branches.append(replace(plan, id=branch.id, branch=branch))
    return branches


def demonstration_plans(
    experiment: Experiment, k: int, learner: str, count: int, tables: Sequence[Table], policies: Mapping[str, Policy]
) -> list[MatchPlan]:
    """The matches in which brains show a policy how to play all its games; iteration 0 is the warm start."""
    pairs = zip(experiment.all_tables(), tables, strict=True)
    own = [(spec, t) for spec, t in pairs if learner in {seat.policy for seat in spec.seats.values()}]
    counts = apportion(count, [spec.share for spec, _ in own])
    counted = zip(own, counts, strict=True)
    return _plans(
        experiment.seed, k, [(t, _configured(spec, t, policies)) for (spec, t), n in counted for _ in range(n)]
    )


def _configured(spec: TableSpec, table: Table, policies: Mapping[str, Policy]) -> dict[str, Seating]:
    return seatings(table, {seat: held.policy for seat, held in spec.seats.items()}, policies)


def _from_pool(experiment: Experiment, k: int, before: int, count: int) -> list[int]:
    """The seeds of an iteration's next deals: the run goes through its pool again and again, each time reordered."""
    size = experiment.play.pool or 0
    pool = np.random.SeedSequence((experiment.seed, number("pool"))).generate_state(size, np.uint64)
    first = (k - 1) * experiment.play.deals + before
    passes = {n // size for n in range(first, first + count)}
    orders = {n: generator(experiment.seed, n, "pool", "order").permutation(size) for n in passes}
    return [int(pool[orders[n // size][n % size]]) for n in range(first, first + count)]


def _plans(
    seed: int,
    k: int,
    deals: Sequence[tuple[Table, dict[str, Seating]]],
    group: int = 1,
    before: int = 0,
    pool: Sequence[int] | None = None,
) -> list[MatchPlan]:
    """A plan for each match, numbered: `group` of them for each deal, each with draws of its own.

    `pool` are the deals' seeds where those may come again: then an iteration has draws of its own, too.
    """
    place = (seed, k, number("deals"), *([before] if before else []))
    seeds = np.random.SeedSequence(place).generate_state(len(deals), np.uint64).tolist() if pool is None else pool
    return [
        MatchPlan(
            f"{k:04d}-{before * group + i:04d}",
            k,
            t.game.name,
            dict(t.game.options),
            seeds[i // group],
            dict(seats),
            draws=(*((i % group,) if group > 1 else ()), *((k,) if pool else ())),
        )
        for i, (t, seats) in enumerate(deal for deal in deals for _ in range(group))
    ]
