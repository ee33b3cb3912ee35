"""Plans of an iteration's matches, from the run's tables, league and seed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np

from agents.policy import Policy
from arena.league.matchmaking import Matchmaker
from arena.parts.apportion import apportion
from arena.parts.chance import generator, number
from arena.play.lineup import make_seatings
from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec
from arena.play.tables import Table
from arena.records import MatchSource, Seating
from games.contracts import MatchId


def plan_iteration(
    rule: PlaySpec,
    seed: int,
    k: int,
    tables: Sequence[Table],
    policies: Mapping[str, Policy],
    matchmaker: Matchmaker | None,
    deals: int | None = None,
    offset: int = 0,
) -> list[MatchPlan]:
    """Return the plans of iteration `k` for all `tables` (games with roles), by their shares, with league opponents.

    `deals` is the number of deals to plan (default: the iteration's) after `offset` earlier ones.
    """
    rng = generator(seed, k, "league", *([f"{offset}"] if offset else []))

    def seats(table: Table, count: int) -> list[dict[str, Seating]]:
        configured = make_seatings(table, table.holders, policies)
        if matchmaker is None:
            return [configured] * count
        return matchmaker.arrange(k, table.game.name, configured, count, policies, rng)

    counts = apportion(rule.deals if deals is None else deals, [table.share for table in tables])
    seated_tables = [(t, s) for t, n in zip(tables, counts, strict=True) for s in seats(t, n)]
    seeds = _draw_pool_seeds(rule, seed, k, offset + len(seated_tables)) if rule.pool else None
    return _make_plans(seed, k, seated_tables, rule.group, offset, seeds)


def plan_demonstrations(
    seed: int, k: int, learner: str, count: int, tables: Sequence[Table], policies: Mapping[str, Policy]
) -> list[MatchPlan]:
    """Return plans of `count` demonstrations for `learner` over all its tables. Iteration `k` = 0 is the warm start."""
    learned = [table for table in tables if learner in table.holders.values()]
    counts = zip(learned, apportion(count, [table.share for table in learned]), strict=True)
    deals = [(t, make_seatings(t, t.holders, policies)) for t, n in counts for _ in range(n)]
    return _make_plans(seed, k, deals, stage="imitate", source="demonstration")


def _draw_pool_seeds(rule: PlaySpec, seed: int, k: int, count: int) -> list[int]:
    """Return the seeds of an iteration's first `count` deals, in a new random order for each pass through the pool."""
    size = rule.pool or 0
    pool = np.random.SeedSequence((seed, number("pool"))).generate_state(size, np.uint64)
    first = (k - 1) * rule.deals
    passes = {n // size for n in range(first, first + count)}
    orders = {n: generator(seed, n, "pool", "order").permutation(size) for n in passes}
    return [int(pool[orders[n // size][n % size]]) for n in range(first, first + count)]


def _make_plans(
    seed: int,
    k: int,
    deals: Sequence[tuple[Table, dict[str, Seating]]],
    group: int = 1,
    offset: int = 0,
    pool: Sequence[int] | None = None,
    stage: str = "train",
    source: MatchSource = "played",
) -> list[MatchPlan]:
    """Return numbered plans: `group` matches for each deal (a game and its seatings), each with different draws.

    `pool` has the seeds of the iteration's deals so far, if deals repeat. Then draws also depend on the iteration and
    on the number of earlier occurrences of the seed.
    """
    entropy = (seed, k, number("deals"), *([offset] if offset else []))
    draw_seeds = np.random.SeedSequence(entropy).generate_state(len(deals), np.uint64).tolist()
    seeds = draw_seeds if pool is None else pool[offset:]
    times, repeats = Counter(pool[:offset] if pool else ()), list[int]()
    for deal_seed in seeds:
        repeats.append(times[deal_seed])
        times[deal_seed] += 1
    seated_deals = [(t, seats, deal_seed) for (t, seats), deal_seed in zip(deals, seeds, strict=True)]
    numbers = count(offset * group)
    return [
        MatchPlan(
            identity=MatchId(k, next(numbers)),
            game=t.game.name,
            options=dict(t.game.options),
            seed=deal_seed,
            seats=dict(seats),
            draws=(*((attempt,) if group > 1 else ()), *((k,) if pool else ()), *((repeats[i],) if repeats[i] else ())),
            group=offset + i if group > 1 else -1,
            stage=stage,
            source=source,
        )
        for i, (t, seats, deal_seed) in enumerate(seated_deals)
        for attempt in range(group)
    ]
