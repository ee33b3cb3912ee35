"""Plans: pools of recurring deals, equal shares, and fresh chance."""

from collections import Counter
from typing import Any

from arena.config.experiment import Experiment
from arena.config.seating import resolve_tables
from arena.play.plans import plan_iteration
from tests.factories.labs import make_experiment


def plan_seeds(config: Experiment, k: int, **more: Any) -> list[int]:
    return [plan.seed for plan in plan_iteration(config.play, config.seed, k, resolve_tables(config), {}, None, **more)]


def make_scripted_experiment(*settings: str) -> Experiment:
    return make_experiment("seats.opener.policy=random", "seats.responder.policy=random", *settings)


def test_without_a_pool_no_deal_recurs() -> None:
    config = make_scripted_experiment("play.matches=16")
    dealt = [seed for k in range(1, 20) for seed in plan_seeds(config, k)]
    assert len(set(dealt)) == len(dealt)


def test_pool_is_exhausted_before_a_deal_recurs() -> None:
    config = make_scripted_experiment("play.matches=8", "play.group=2", "play.pool=6")
    dealt = [seed for k in range(1, 10) for seed in plan_seeds(config, k)]
    assert dealt[::2] == dealt[1::2], "a group of two shares a deal"
    passes = [dealt[::2][n : n + 6] for n in range(0, 36, 6)]
    assert all(sorted(batch) == sorted(passes[0]) for batch in passes) and len(set(passes[0])) == 6
    assert len({tuple(batch) for batch in passes}) > 1, "each time in another order"


def test_replacement_deals_continue_the_pool() -> None:
    config = make_scripted_experiment("play.matches=4", "play.pool=100", "play.parts=[resample]")
    assert not {*plan_seeds(config, 1)} & {*plan_seeds(config, 1, deals=3, offset=4)}


def test_recurring_deal_has_fresh_chance() -> None:
    config = make_scripted_experiment("play.matches=4", "play.group=2", "play.pool=2")
    plans = [
        plan for k in (1, 2) for plan in plan_iteration(config.play, config.seed, k, resolve_tables(config), {}, None)
    ]
    assert set(Counter(plan.seed for plan in plans).values()) == {4}
    assert len({(plan.seed, plan.draws) for plan in plans}) == 8


def test_deal_recurring_within_an_iteration_has_fresh_chance() -> None:
    config = make_scripted_experiment("play.matches=6", "play.pool=3", "play.parts=[resample]")
    more: list[dict[str, Any]] = [{}, {"deals": 4, "offset": 6}]
    plans = [
        plan
        for settings in more
        for plan in plan_iteration(config.play, config.seed, 1, resolve_tables(config), {}, None, **settings)
    ]
    assert set(Counter(plan.seed for plan in plans).values()) == {3, 4}
    assert len({(plan.seed, plan.draws) for plan in plans}) == 10
