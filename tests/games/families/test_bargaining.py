"""Bargaining theory: small cases by hand, the limits of Rubinstein and Nash, and the reported measures."""

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


def list_pie_splits(units):
    """Return every split of a pie of `units` units."""
    return tuple((k, units - k) for k in range(units + 1))


def solve_offers(deals, turns, breakdown):
    return [stage.offer for stage in subgame_perfect(deals, turns, breakdown)]


def test_with_one_turn_left_no_offer_can_be_accepted():
    (last,) = subgame_perfect(list_pie_splits(10), 1, 0.5)
    assert last.offer == last.expected == (0, 0)


def test_ultimatum_with_two_turns_left_takes_all_and_breaks_ties_kindly():
    assert solve_offers(list_pie_splits(10), 2, 0.5) == [(10, 0), (0, 0)]
    assert solve_offers(((10, 3), (7, 7), (3, 10)), 2, 0.5)[0] == (10, 3)
    assert solve_offers(((10, 0), (10, 3), (7, 7)), 2, 0.5)[0] == (
        10,
        3,
    )  # ties between own payoffs go to the other side


def test_three_and_four_turns_by_hand():
    # Turn 1 is the second side's ultimatum, reached with chance 1/2: it accepts 5 at turn 0.
    three_turns = subgame_perfect(list_pie_splits(10), 3, 0.5)
    assert [stage.offer for stage in three_turns] == [(5, 5), (0, 10), (0, 0)]
    assert [stage.expected for stage in three_turns] == [(5, 5), (0, 5), (0, 0)]
    # Turn 2 is the first side's: 5 on average, so 5 are left for the second at turn 1, 2.5 on average; it accepts 3.
    four_turns = subgame_perfect(list_pie_splits(10), 4, 0.5)
    assert [stage.offer for stage in four_turns] == [(7, 3), (5, 5), (10, 0), (0, 0)]
    assert four_turns[1].expected == (2.5, 2.5)
    # Without a risk of breakdown, the last side whose offer can be answered gets everything.
    assert [solve_offers(list_pie_splits(10), turns, 0)[0] for turns in (2, 3, 4, 5)] == [(10, 0), (0, 10)] * 2


def test_ties_are_exact_despite_rounding():
    """In binary, 1 - 0.7 is more than 0.3, so the second side would refuse the 3 to which it is indifferent."""
    assert (1 - 0.7) * 10 > 3
    assert solve_offers(list_pie_splits(10), 3, 0.7)[0] == (7, 3)


def solve_by_brute_force(deals, turns, breakdown):
    """Return both sides' expected payoffs, allowing offers that will be refused."""
    if turns == 0:
        return 0.0, 0.0

    def solve_turn(turn):
        mover, other, outcome = turn % 2, 1 - turn % 2, (0.0, 0.0)
        if turn + 1 < turns:
            later = solve_turn(turn + 1)
            outcomes = [deal if deal[other] >= later[other] - 1e-9 else later for deal in deals]
            outcome = max(outcomes, key=lambda deal: (round(deal[mover], 9), deal[other]))
        chance = 1 - breakdown if turn else 1
        return chance * outcome[0], chance * outcome[1]

    return solve_turn(0)


DEALS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=8).map(
    lambda deals: tuple(sorted({*deals, (0, 10), (10, 0)}))
)


@given(DEALS, st.integers(1, 9), st.integers(0, 99))
def test_equilibrium_matches_brute_force(deals, turns, percent):
    assert subgame_perfect(deals, turns, percent / 100)[0].offer == pytest.approx(
        solve_by_brute_force(deals, turns, percent / 100)
    )


@pytest.mark.parametrize("breakdown", [0.02, 0.1, 0.3, 0.5])
def test_divisible_pie_is_split_as_in_rubinsteins_model(breakdown):
    """Rounding up costs at most one unit per turn, discounted by d for each earlier turn: 1 / (units * (1 - d)) in
    total. The final ultimatum still weighs d ** (turns - 2)."""
    patience, turns = 1 - breakdown, 400
    share, errors = 1 / (1 + patience), []
    for units in (10, 100, 1000):
        first, second = solve_offers(list_pie_splits(units), turns, breakdown)[0]
        errors.append(abs(first / units - share))
        assert first + second == units
        assert errors[-1] <= 1 / (units * breakdown) + patience ** (turns - 2)
        assert (
            abs(solve_offers(list_pie_splits(units), turns + 1, breakdown)[0][0] / units - share)
            <= 1 / (units * breakdown) + 1e-3
        )
    assert errors[-1] < 0.05


def test_last_turn_matters_forever_when_units_are_coarse():
    """10 units at 1 - d = 0.1: 10 - ceil(0.9 * 10) = 1, 10 - ceil(0.9 * 1) = 9, 10 - ceil(0.9 * 9) = 1, and so on."""
    assert [solve_offers(list_pie_splits(10), turns, 0.1)[0][0] for turns in range(2, 8)] == [10, 1, 9, 1, 9, 1]
    assert {solve_offers(list_pie_splits(10), turns, 0.1)[0][0] for turns in (200, 201)} == {1, 9}
    assert {solve_offers(list_pie_splits(10), turns, 0.2)[0][0] for turns in (200, 201)} == {5, 6}  # Rubinstein: 5.56


def test_equilibrium_converges_to_nash_solution_as_risk_vanishes():
    """Binmore, Rubinstein and Wolinsky. For the deals (x, 1 - x²), x (1 - x²) is largest at 1 / sqrt 3."""
    units = 2000
    deals = tuple((k * units, units**2 - k**2) for k in range(units + 1))
    (nash,) = find_nash_deals(deals)
    assert nash[0] / units**2 == pytest.approx(1 / math.sqrt(3), abs=1 / units)
    gaps = []
    for breakdown in (0.4, 0.2, 0.1, 0.05):
        first, _ = solve_offers(deals, 200, breakdown)[0]
        gaps.append(first / units**2 - 1 / math.sqrt(3))
    assert all(0 < later < 0.6 * earlier for earlier, later in itertools.pairwise(gaps)) and gaps[-1] < 0.02


def test_nash_deals_may_tie():
    assert find_nash_deals(((9, 1), (8, 4), (4, 8))) == ((8, 4), (4, 8))
    tied = figures((8, 4), ((8, 4), (4, 8)))
    payoffs = [tied[name] for name in ("nash_payoff_first", "nash_payoff_second", "nash_distance", "nash_product")]
    assert payoffs == [6, 6, 0, 1]


def test_measures_by_hand():
    deals = ((10, 1), (7, 6), (4, 9), (0, 10))
    assert figures((7, 5), deals, (10, 1)) == {
        "joint_value": 12, "best_joint_value": 13, "efficiency": 12 / 13, "nash_product": 35 / 42,
        "nash_product_raw": 35, "pareto_distance": 1, "nash_distance": 1, "payoff_first": 7, "payoff_second": 5,
        "nash_payoff_first": 7, "nash_payoff_second": 6,
        "equilibrium_distance": 5, "equilibrium_payoff_first": 10, "equilibrium_payoff_second": 1,
    }  # fmt: skip
    assert "equilibrium_payoff_first" not in figures((0, 0), deals)


@given(*[st.tuples(*[st.integers(0, most)] * 3) for most in (4, 9, 9)])
def test_frontier_holds_all_undominated_deals(pool, first_values, second_values):
    deals = {(worth(first_values, share), worth(second_values, remainder(pool, share))) for share in splits(pool)}
    undominated = {
        deal for deal in deals if not any(other != deal and min(map(sub, other, deal)) >= 0 for other in deals)
    }
    assert frontier(pool, first_values, second_values) == tuple(sorted(undominated, reverse=True))


def test_docs_table_matches_the_computed_equilibria():
    deals = [frontier(pool, *values) for pool, values in instances()]
    risks = (0, 0.05, 0.1, 0.2, 0.3)
    rows = {f"{risk:g}": [[solve_offers(pool_deals, 10, risk)[0]] for pool_deals in deals] for risk in risks}
    rows["Nash"] = [list(find_nash_deals(pool_deals)) for pool_deals in deals]
    page = (Path(__file__).parents[3] / "docs" / "games.md").read_text("utf-8")
    for name, outcomes in rows.items():
        first, second = (fmean(fmean(deal[side] for deal in tied) for tied in outcomes) for side in (0, 1))
        joint = fmean(
            fmean(map(sum, tied)) / max(map(sum, pool_deals)) for tied, pool_deals in zip(outcomes, deals, strict=True)
        )
        fair_share = fmean(fmean(min(deal) >= 3 for deal in tied) for tied in outcomes)
        row = f"| {name} | {first:.2f} | {second:.2f} | {joint:.2f} | {fair_share:.2f} |"
        assert row in page, row
    for pool_deals in deals[::60]:  # further claims of that page
        assert solve_offers(pool_deals, 10, 0.05)[0] == solve_offers(pool_deals, 10, 0)[0]
        assert all(solve_offers(pool_deals, 10, risk)[0] == solve_offers(pool_deals, 100, risk)[0] for risk in risks)
    assert 0.09 < fmean(len(tied) > 1 for tied in rows["Nash"]) < 0.11
