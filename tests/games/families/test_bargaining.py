"""What theory says of bargaining: small cases by hand, Rubinstein's and Nash's limits, figures."""

import itertools
import math
from operator import sub
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.families.bargaining import figures, find_nash_deals, subgame_perfect
from games.families.pools import frontier, instances, remainder, splits, worth


def pie(units):
    """Every split of a pie of so many units."""
    return tuple((k, units - k) for k in range(units + 1))


def offers(deals, turns, breakdown):
    return [stage.offer for stage in subgame_perfect(deals, turns, breakdown)]


def test_with_one_turn_left_no_offer_can_be_accepted():
    (last,) = subgame_perfect(pie(10), 1, 0.5)
    assert last.offer == last.expected == (0, 0)


def test_with_two_turns_left_an_ultimatum_takes_all_and_is_kind_for_nothing():
    assert offers(pie(10), 2, 0.5) == [(10, 0), (0, 0)]
    assert offers(((10, 3), (7, 7), (3, 10)), 2, 0.5)[0] == (10, 3)
    assert offers(((10, 0), (10, 3), (7, 7)), 2, 0.5)[0] == (10, 3)  # the best for the other among one's own best


def test_three_and_four_turns_by_hand():
    # Turn 1 is the second side's ultimatum, reached with chance 1/2: it accepts 5 at turn 0.
    three = subgame_perfect(pie(10), 3, 0.5)
    assert [stage.offer for stage in three] == [(5, 5), (0, 10), (0, 0)]
    assert [stage.expected for stage in three] == [(5, 5), (0, 5), (0, 0)]
    # Turn 2 is the first side's: 5 on average, so 5 are left for the second at turn 1, 2.5 on average; it accepts 3.
    four = subgame_perfect(pie(10), 4, 0.5)
    assert [stage.offer for stage in four] == [(7, 3), (5, 5), (10, 0), (0, 0)]
    assert four[1].expected == (2.5, 2.5)
    # Without a risk of breakdown nobody need hurry: the last who can be answered gets everything.
    assert [offers(pie(10), turns, 0)[0] for turns in (2, 3, 4, 5)] == [(10, 0), (0, 10)] * 2


def test_ties_are_exact():
    """1 - 0.7 is more than 0.3 in binary: the second side would refuse the 3 that it is indifferent to."""
    assert (1 - 0.7) * 10 > 3
    assert offers(pie(10), 3, 0.7)[0] == (7, 3)


def brute_force(deals, turns, breakdown):
    """What both get on average, where a refused offer is as good a choice as any."""
    if turns == 0:
        return 0.0, 0.0

    def mover_offers(turn):
        me, you, ahead = turn % 2, 1 - turn % 2, (0.0, 0.0)
        if turn + 1 < turns:
            later = mover_offers(turn + 1)
            taken = [deal if deal[you] >= later[you] - 1e-9 else later for deal in deals]
            ahead = max(taken, key=lambda deal: (round(deal[me], 9), deal[you]))
        chance = 1 - breakdown if turn else 1
        return chance * ahead[0], chance * ahead[1]

    return mover_offers(0)


DEALS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=8).map(
    lambda deals: tuple(sorted({*deals, (0, 10), (10, 0)}))
)


@given(DEALS, st.integers(1, 9), st.integers(0, 99))
def test_nobody_gains_by_waiting_whatever_the_deals(deals, turns, percent):
    assert subgame_perfect(deals, turns, percent / 100)[0].offer == pytest.approx(
        brute_force(deals, turns, percent / 100)
    )


@pytest.mark.parametrize("breakdown", [0.02, 0.1, 0.3, 0.5])
def test_a_divisible_pie_is_split_as_rubinstein_says(breakdown):
    """Rounding up costs at most a unit a turn, of which each turn before keeps d: 1 / (units * (1 - d)) in all; of the
    ultimatum at the end d ** (turns - 2) is left."""
    patience, turns = 1 - breakdown, 400
    share, errors = 1 / (1 + patience), []
    for units in (10, 100, 1000):
        first, second = offers(pie(units), turns, breakdown)[0]
        errors.append(abs(first / units - share))
        assert first + second == units
        assert errors[-1] <= 1 / (units * breakdown) + patience ** (turns - 2)
        assert abs(offers(pie(units), turns + 1, breakdown)[0][0] / units - share) <= 1 / (units * breakdown) + 1e-3
    assert errors[-1] < 0.05


def test_the_last_turn_is_felt_for_ever_where_the_unit_is_coarser_than_the_risk():
    """10 units at 1 - d = 0.1: 10 - ceil(0.9 * 10) = 1, 10 - ceil(0.9 * 1) = 9, 10 - ceil(0.9 * 9) = 1, and so on."""
    assert [offers(pie(10), turns, 0.1)[0][0] for turns in range(2, 8)] == [10, 1, 9, 1, 9, 1]
    assert {offers(pie(10), turns, 0.1)[0][0] for turns in (200, 201)} == {1, 9}
    assert {offers(pie(10), turns, 0.2)[0][0] for turns in (200, 201)} == {5, 6}  # Rubinstein: 5.56


def test_without_hurry_it_comes_to_nashs_solution():
    """Binmore, Rubinstein and Wolinsky: as the risk vanishes. Deals (x, 1 - x²): x (1 - x²) is most at 1 / sqrt 3."""
    units = 2000
    deals = tuple((k * units, units**2 - k**2) for k in range(units + 1))
    (nash,) = find_nash_deals(deals)
    assert nash[0] / units**2 == pytest.approx(1 / math.sqrt(3), abs=1 / units)
    gaps = []
    for breakdown in (0.4, 0.2, 0.1, 0.05):
        first, _ = offers(deals, 200, breakdown)[0]
        gaps.append(first / units**2 - 1 / math.sqrt(3))
    assert all(0 < later < 0.6 * earlier for earlier, later in itertools.pairwise(gaps)) and gaps[-1] < 0.02


def test_nash_deals_may_tie():
    assert find_nash_deals(((9, 1), (8, 4), (4, 8))) == ((8, 4), (4, 8))
    tied = figures((8, 4), ((8, 4), (4, 8)))
    told = [tied[name] for name in ("nash_payoff_first", "nash_payoff_second", "nash_distance", "nash_product")]
    assert told == [6, 6, 0, 1]


def test_figures_by_hand():
    deals = ((10, 1), (7, 6), (4, 9), (0, 10))
    assert figures((7, 5), deals, (10, 1)) == {
        "joint_value": 12, "best_joint_value": 13, "efficiency": 12 / 13, "nash_product": 35 / 42,
        "nash_product_raw": 35, "pareto_distance": 1, "nash_distance": 1, "payoff_first": 7, "payoff_second": 5,
        "nash_payoff_first": 7, "nash_payoff_second": 6,
        "equilibrium_distance": 5, "equilibrium_payoff_first": 10, "equilibrium_payoff_second": 1,
    }  # fmt: skip
    assert "equilibrium_payoff_first" not in figures((0, 0), deals)


@given(*[st.tuples(*[st.integers(0, most)] * 3) for most in (4, 9, 9)])
def test_the_frontier_is_what_no_other_deal_dominates(pool, one, two):
    deals = {(worth(one, share), worth(two, remainder(pool, share))) for share in splits(pool)}
    best = {deal for deal in deals if not any(other != deal and min(map(sub, other, deal)) >= 0 for other in deals)}
    assert frontier(pool, one, two) == tuple(sorted(best, reverse=True))


def test_the_table_of_the_docs():
    deals = [frontier(pool, *values) for pool, values in instances()]
    risks = (0, 0.05, 0.1, 0.2, 0.3)
    rows = {f"{risk:g}": [[offers(one, 10, risk)[0]] for one in deals] for risk in risks}
    rows["Nash"] = [list(find_nash_deals(one)) for one in deals]
    told = (Path(__file__).parents[3] / "docs" / "games.md").read_text("utf-8")
    for name, outcomes in rows.items():
        first, second = (fmean(fmean(deal[side] for deal in tied) for tied in outcomes) for side in (0, 1))
        joint = fmean(fmean(map(sum, tied)) / max(map(sum, one)) for tied, one in zip(outcomes, deals, strict=True))
        good = fmean(fmean(min(deal) >= 3 for deal in tied) for tied in outcomes)
        row = f"| {name} | {first:.2f} | {second:.2f} | {joint:.2f} | {good:.2f} |"
        assert row in told, row
    for one in deals[::60]:  # what else is said there
        assert offers(one, 10, 0.05)[0] == offers(one, 10, 0)[0]
        assert all(offers(one, 10, risk)[0] == offers(one, 100, risk)[0] for risk in risks)
    assert 0.09 < fmean(len(tied) > 1 for tied in rows["Nash"]) < 0.11
