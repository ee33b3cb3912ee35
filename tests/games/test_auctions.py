"""Auctions: prices by hand, OpenSpiel's payoffs, and truthful and shaded bidding compared with theory."""

import collections
import itertools
import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pyspiel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.auctions import FirstPriceAuction, SecondPriceAuction

AUCTIONS = (FirstPriceAuction, SecondPriceAuction)


def play_auction(kind, values, bids, seed=0, **options):
    game = kind(players=len(values), **options)
    game.reset(seed=seed, options={"values": values})
    for bid in bids:
        game.step(f"BID {bid}")
    return game


def test_prices_by_hand():
    first = play_auction(FirstPriceAuction, [8, 3, 10], [5, 3, 4])
    assert first.payoffs() == {"player_0": 3, "player_1": 0, "player_2": 0}
    assert first.report() == {"ended": "rounds", "turns": 3, "revenue": 5.0, "efficiency": 0.8}
    second = play_auction(SecondPriceAuction, [8, 3, 10], [5, 3, 4])
    assert second.payoffs() == {"player_0": 4, "player_1": 0, "player_2": 0} and second.report()["revenue"] == 4
    loser = play_auction(FirstPriceAuction, [1, 5], [10, 0])
    assert loser.payoffs() == {"player_0": -9, "player_1": 0} and loser.stakes == 9
    assert "referee: Bids: player_0 10, player_1 0. player_0 wins and pays 10." in loser.render()


def test_payoffs_match_openspiel():
    spiel = pyspiel.load_game("first_sealed_auction(players=2,max_value=4)")
    for values in itertools.product(range(1, 5), repeat=2):
        for bids in itertools.product(*(range(value) for value in values)):  # OpenSpiel forbids bidding one's value
            state = spiel.new_initial_state()
            for action in (*values, *bids):
                state.apply_action(action)
            game = play_auction(FirstPriceAuction, list(values), bids, max_value=4)
            highest = [player for player in (0, 1) if bids[player] == max(bids)]
            assert [player for player, _ in state.chance_outcomes()] == highest  # OpenSpiel draws among ties too
            state.apply_action(int(game.winner[-1]))
            assert list(game.payoffs().values()) == state.returns()


@pytest.mark.parametrize("kind", AUCTIONS)
def test_ties_are_drawn_fairly_and_repeatably(kind):
    winners = [play_auction(kind, [5, 5, 5, 5], [4, 2, 4, 4], seed).winner for seed in range(600)]
    counts = collections.Counter(winners)
    assert set(counts) == {"player_0", "player_2", "player_3"}
    assert all(abs(count - 200) < 5 * math.sqrt(600 * 2 / 9) for count in counts.values())
    assert winners[:20] == [play_auction(kind, [5, 5, 5, 5], [4, 2, 4, 4], seed).winner for seed in range(20)]


def test_truthful_bidding_is_weakly_dominant_in_second_price_auctions():
    max_bid, strictly_better = 4, 0
    for value, *others in itertools.product(range(1, max_bid + 1), *[range(max_bid + 1)] * 2):
        gain: dict[int, list[float]] = {}
        for bid, seed in itertools.product(range(max_bid + 1), range(3)):
            game = play_auction(SecondPriceAuction, [value, 1, 1], [bid, *others], seed, max_value=max_bid)
            gain.setdefault(bid, []).append(game.payoffs()["player_0"])
        assert all(min(gain[value]) >= max(deviant) for deviant in gain.values())  # however ties are broken
        strictly_better += sum(min(gain[value]) > max(deviant) for deviant in gain.values())
    assert strictly_better > 50


def compute_win_probability(bids_of_others, others, bid):
    """Return the probability of winning with `bid` against independent bidders with this bid distribution."""
    lower = sum(chance for other, chance in bids_of_others.items() if other < bid)
    equal = bids_of_others.get(bid, Fraction(0))
    return sum(
        math.comb(others, k) * equal**k * lower ** (others - k) * Fraction(1, k + 1) for k in range(others + 1)
    )  # fmt: skip


def compute_regret(players, max_bid):
    """Return the largest gain, over all values, from deviating while the others shade their bids."""

    def shade(value):
        return math.ceil(Fraction(players - 1, players) * value)

    bids = collections.Counter(map(shade, range(1, max_bid + 1)))
    chances = {bid: Fraction(count, max_bid) for bid, count in bids.items()}
    wins = [compute_win_probability(chances, players - 1, bid) for bid in range(max_bid + 1)]
    return max(
        max(wins[bid] * (value - bid) for bid in range(max_bid + 1)) - wins[shade(value)] * (value - shade(value))
        for value in range(1, max_bid + 1)
    )


def test_shading_is_an_equilibrium_of_first_price_auctions():
    assert FirstPriceAuction.theory["equilibrium_shading"] == (2 - 1) / 2
    assert all(compute_regret(2, max_bid) == 0 for max_bid in range(2, 61, 2))  # exact
    # with more players it is exact only for continuous values; for integers the regret is below a third of a coin
    assert all(
        compute_regret(players, max_bid) < Fraction(1, 3) for players in range(3, 7) for max_bid in (10, 30, 100)
    )


def test_win_probability_matches_the_game():
    bids = {0: Fraction(1, 3), 2: Fraction(2, 3)}  # the others' values 1, 2, 3 shaded: 0, 2, 2, say
    chance = {bid: compute_win_probability(bids, 2, bid) for bid in range(4)}
    for bid in range(4):
        won = [
            play_auction(FirstPriceAuction, [3, 1, 1], [bid, *others], seed, max_value=3).winner == "player_0"
            for others in itertools.product((0, 2, 2), repeat=2) for seed in range(100)
        ]  # fmt: skip
        assert statistics.fmean(won) == pytest.approx(float(chance[bid]), abs=5 * 0.5 / math.sqrt(900))


def test_mean_revenues_in_equilibrium():
    revenue: dict[Any, list[float]] = {kind: [] for kind in AUCTIONS}
    for values in itertools.product(range(1, 11), repeat=2):
        shaded_bids = [-(-value // 2) for value in values]
        revenue[FirstPriceAuction].append(
            play_auction(FirstPriceAuction, list(values), shaded_bids).report()["revenue"]
        )
        revenue[SecondPriceAuction].append(play_auction(SecondPriceAuction, list(values), values).report()["revenue"])
    means = {kind: statistics.fmean(revenues) for kind, revenues in revenue.items()}
    assert means[FirstPriceAuction] == pytest.approx(FirstPriceAuction.theory["equilibrium_revenue"])
    assert means[SecondPriceAuction] == pytest.approx(SecondPriceAuction.theory["truthful_revenue"])


@given(
    data=st.data(), kind=st.sampled_from(AUCTIONS), players=st.integers(2, 6), max_bid=st.integers(2, 30),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_auction_pays_by_its_price_rule(data, kind, players, max_bid, seed):
    game = kind(players=players, max_value=max_bid)
    game.reset(seed=seed)
    values = dict(game.values)
    assert list(values) == list(game.seats) and all(1 <= value <= max_bid for value in values.values())
    bids = {}
    while not game.ended:
        seat = game.agent_selection
        assert game.infos[seat]["private"] == {"value": values[seat]}
        act = data.draw(st.sampled_from(game.infos[seat]["legal"]))
        bids[seat] = int(act.split()[1])
        game.step(act)
    top, *rest = sorted(bids.values(), reverse=True)
    assert bids[game.winner] == top and game.payment == (top if kind is FirstPriceAuction else rest[0])
    assert game.payoffs() == {s: values[s] - game.payment if s == game.winner else 0 for s in game.seats}
    assert min(game.payoffs().values()) >= -game.stakes and 0 < game.report()["efficiency"] <= 1


def test_values_are_drawn_uniformly():
    game = FirstPriceAuction(players=5)
    counts: collections.Counter[Any] = collections.Counter()
    for seed in range(400):
        game.reset(seed=seed)
        counts.update(game.values.values())
    assert set(counts) == set(range(1, 11)) and all(abs(count - 200) < 5 * math.sqrt(180) for count in counts.values())


def test_twin_deals_change_all_other_values():
    for seed in range(50):
        game = SecondPriceAuction(players=3)
        deal, twin = game.twin_deals("player_1", np.random.default_rng(seed))
        assert [a == b for a, b in zip(deal["values"], twin["values"], strict=True)] == [False, True, False]
        game.reset(options=deal)
        game.reset(options=twin)


@pytest.mark.parametrize("values", [[1], [1, 2, 3], [0, 1], [1, 11], [1, 2.5], ["1", 2]])
def test_refuses_invalid_values(values):
    with pytest.raises(ValueError, match=r"^values must be "):
        FirstPriceAuction().reset(options={"values": values})
