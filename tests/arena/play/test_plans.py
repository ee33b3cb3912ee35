"""What will be played: deals that come again, as often as each other, and with other chance."""

from collections import Counter
from typing import Any

from arena.config.experiment import Experiment
from arena.config.seating import resolve_tables
from arena.play.plans import plan_iteration
from tests.factories.labs import make_experiment


def seeds(given: Experiment, k: int, **more: Any) -> list[int]:
    return [plan.seed for plan in plan_iteration(given.play, given.seed, k, resolve_tables(given), {}, None, **more)]


def scripted(*settings: str) -> Experiment:
    return make_experiment("seats.opener.policy=random", "seats.responder.policy=random", *settings)


def test_without_a_pool_no_deal_comes_again() -> None:
    given = scripted("play.matches=16")
    dealt = [seed for k in range(1, 20) for seed in seeds(given, k)]
    assert len(set(dealt)) == len(dealt)


def test_a_pool_is_gone_through_before_any_deal_comes_again() -> None:
    given = scripted("play.matches=8", "play.group=2", "play.pool=6")
    dealt = [seed for k in range(1, 10) for seed in seeds(given, k)]
    assert dealt[::2] == dealt[1::2], "a group of two shares a deal"
    passes = [dealt[::2][n : n + 6] for n in range(0, 36, 6)]
    assert all(sorted(one) == sorted(passes[0]) for one in passes) and len(set(passes[0])) == 6
    assert len({tuple(one) for one in passes}) > 1, "each time in another order"


def test_what_is_played_in_place_of_dropped_deals_goes_on_with_the_pool() -> None:
    given = scripted("play.matches=4", "play.pool=100", "play.parts=[resample]")
    assert not {*seeds(given, 1)} & {*seeds(given, 1, deals=3, offset=4)}


def test_a_deal_that_comes_again_has_chance_of_its_own() -> None:
    given = scripted("play.matches=4", "play.group=2", "play.pool=2")
    plans = [
        plan for k in (1, 2) for plan in plan_iteration(given.play, given.seed, k, resolve_tables(given), {}, None)
    ]
    assert set(Counter(plan.seed for plan in plans).values()) == {4}
    assert len({(plan.seed, plan.draws) for plan in plans}) == 8


def test_a_deal_that_comes_again_in_one_iteration_has_chance_of_its_own_too() -> None:
    given = scripted("play.matches=6", "play.pool=3", "play.parts=[resample]")
    more: list[dict[str, Any]] = [{}, {"deals": 4, "offset": 6}]
    plans = [
        plan for of in more for plan in plan_iteration(given.play, given.seed, 1, resolve_tables(given), {}, None, **of)
    ]
    assert set(Counter(plan.seed for plan in plans).values()) == {3, 4}
    assert len({(plan.seed, plan.draws) for plan in plans}) == 10
