"""Haggling: turns, transfers, secrets, reported measures and theory values."""

import itertools
import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.haggle import Haggle


def play_haggle(cost, value, *acts, **options):
    game = Haggle(**options)
    game.reset(seed=0, options={"cost": cost, "value": value})
    for act in acts:
        game.step(act)
    return game


def test_deal_by_hand():
    game = play_haggle(3, 8, "PRICE 9 | a bargain", "PRICE 4", "price  6", "ACCEPT")
    assert game.payoffs() == {"seller": 3, "buyer": 2}
    assert game.infos["seller"]["rewards"] == {"deal": 3} and game.infos["buyer"]["rewards"] == {"deal": 2}
    assert game.report() == {
        "ended": "deal", "turns": 4, "deal": True, "gainful": True, "joint_value": 5.0, "best_joint_value": 5.0,
        "efficiency": 1.0, "buyer_share": 0.4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "value", "acts", "payoffs", "gainful", "efficiency"),
    [
        (3, 8, ["PRICE 5", "WALK"], (0, 0), True, 0),  # a gain missed
        (8, 3, ["PRICE 8", "WALK"], (0, 0), False, 1),  # nothing to gain, nothing lost
        (8, 3, ["PRICE 9", "ACCEPT"], (1, -6), False, 0),  # a bad deal
        (5, 5, ["PRICE 5", "ACCEPT"], (0, 0), False, 1),
        (3, 8, ["PRICE 2", "ACCEPT"], (-1, 6), True, 1),  # bad for the seller alone
    ],
)
def test_measures_by_hand(cost, value, acts, payoffs, gainful, efficiency):
    game = play_haggle(cost, value, *acts)
    assert tuple(game.payoffs().values()) == payoffs
    assert (game.report()["gainful"], game.report()["efficiency"]) == (gainful, efficiency)


def test_theory_values():
    deals = list(itertools.product(range(1, 11), repeat=2))
    reports = [play_haggle(cost, value, "WALK").report() for cost, value in deals]
    assert statistics.fmean(r["best_joint_value"] for r in reports) == Haggle.theory["mean_best_joint_value"] == 99 / 60
    assert statistics.fmean(r["gainful"] for r in reports) == Haggle.theory["gainful"] == 9 / 20
    assert all(play_haggle(*deal, "WALK").payoffs() == {"seller": 0, "buyer": 0} for deal in deals)
    assert Haggle.theory["no_deal"] == 0
    lowest_payoffs = [
        min(play_haggle(c, v, f"PRICE {p}", "ACCEPT").payoffs().values()) for c, v, p in [(1, 1, 10), (10, 1, 1)]
    ]
    assert lowest_payoffs == [-Haggle().stakes, -Haggle().stakes]


def test_cost_and_value_are_drawn_uniformly():
    game, counts = Haggle(max_price=5), np.zeros((5, 5))
    for seed in range(2500):
        game.reset(seed=seed)
        counts[game.cost - 1, game.value - 1] += 1
    assert abs(counts - 100).max() < 5 * math.sqrt(100)


@pytest.mark.parametrize("opens", ["seller", "buyer"])
def test_turns_are_counted_exactly(opens):
    for limit in range(2, 8):
        game = play_haggle(1, 9, max_turns=limit, opens=opens)
        order = [opens, *({"seller", "buyer"} - {opens})]
        for turn in range(limit):
            assert game.agent_selection == order[turn % 2]
            assert (game.public()["turn"], game.public()["turns_left"]) == (turn, limit - turn)
            assert ("ACCEPT" in game.infos[game.agent_selection]["legal"]) == (turn > 0)
            game.step("PRICE 5")
        assert game.ended == "turns" and game.payoffs() == {"seller": 0, "buyer": 0}


def test_refuses_illegal_acts():
    hostile = ["PRICE 0", "PRICE 11", "PRICE", "PRICE -1", "PRICE 1.5", "PRICE ٣", "PRICE 3 coins", "3", "ACCEPT", ""]
    for act in hostile:
        game = play_haggle(1, 9, act)
        assert game.infos["seller"]["valid"] is False and game.public()["price"] is None
    assert play_haggle(1, 9, "what?", "what?").report()["ended"] == "illegal"


@given(data=st.data(), max_price=st.integers(2, 30), turns=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
def test_any_haggle_is_reported_consistently(data, max_price, turns, seed):
    game = Haggle(max_price=max_price, max_turns=turns)
    game.reset(seed=seed)
    price = None
    while not game.ended:
        seat = game.agent_selection
        private = {"cost": game.cost} if seat == "seller" else {"value": game.value}
        assert game.infos[seat]["private"] == private
        assert game.infos[seat]["public"] == {
            "max_price": max_price, "price": price, "turn": game.turns, "turns_left": turns - game.turns,
        }  # fmt: skip
        act = data.draw(st.sampled_from(game.infos[seat]["legal"]))
        game.step(act)
        price = int(act.split()[1]) if act.startswith("PRICE") else price
    report: dict[str, Any] = game.report()
    payoffs = game.payoffs()
    assert report["deal"] == (act == "ACCEPT") and report["joint_value"] == sum(payoffs.values())
    if report["deal"]:
        assert price is not None
        assert payoffs == {"seller": price - game.cost, "buyer": game.value - price}
    assert min(payoffs.values()) >= -game.stakes
    assert 0 <= report["efficiency"] <= 1 and ("buyer_share" in report) == (report["deal"] and report["gainful"])


@pytest.mark.parametrize("seat", Haggle.seats)
def test_twin_deals_change_the_other_side_alone(seat):
    own_field, other_field = ("cost", "value") if seat == "seller" else ("value", "cost")
    for seed in range(50):
        first, second = Haggle().twin_deals(seat, np.random.default_rng(seed))
        assert first[own_field] == second[own_field] and first[other_field] != second[other_field]
        for deal in (first, second):
            play_haggle(**deal)


@pytest.mark.parametrize(
    ("name", "invalid_value"),
    [("max_price", 1), ("max_price", 2.0), ("max_turns", 1), ("max_turns", True), ("opens", "both"), ("opens", None)],
)
def test_bad_options_are_named_by_haggle(name, invalid_value):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        Haggle(**{name: invalid_value})


@pytest.mark.parametrize(("name", "invalid_value"), [("cost", 0), ("cost", 11), ("value", "3"), ("value", 1.0)])
def test_bad_deals_are_named_by_haggle(name, invalid_value):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        Haggle().reset(options={name: invalid_value})
