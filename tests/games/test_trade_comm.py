"""TradeComm: payoffs by hand and by OpenSpiel, private information, and the best value without talk."""

import itertools
from typing import Any

import numpy as np
import pyspiel
import pytest

import games


def play_acts(deal, *acts, **options):
    game = games.make("trade_comm", **options)
    game.reset(seed=0, options={"chance": [deal]})
    for act in acts:
        game.step(act)
    return game


@pytest.mark.parametrize(
    ("first_act", "second_act", "payoff"),
    [
        ("TRADE B FOR D", "TRADE D FOR B", 1.0),
        ("TRADE B FOR D", "TRADE D FOR C", 0.0),  # the second wants an item that the first does not give
        ("TRADE B FOR C", "TRADE D FOR B", 0.0),  # and vice versa
        ("TRADE A FOR D", "TRADE D FOR A", 0.0),  # they match, but the first has no A
        ("TRADE B FOR A", "TRADE A FOR B", 0.0),  # the second has no A
        ("TRADE D FOR B", "TRADE B FOR D", 0.0),  # sides swapped
    ],
)
def test_payoffs_by_hand(first_act, second_act, payoff):
    game = play_acts(
        1 * 4 + 3, "say b", "SAY D", first_act, f"  {second_act.lower()} "
    )  # the first has B, the second D
    assert game.payoffs() == {"first": payoff, "second": payoff}
    assert game.report() == {"ended": "trade" if payoff else "no_trade", "turns": 4, "trade": bool(payoff)}
    verdict = "The trade is made" if payoff else "There is no trade"
    last = game.observe("first")["messages"][-1]["text"]
    assert last == f"{verdict}: first wrote {first_act}, second wrote {second_act}."


def test_the_same_item_may_be_on_both_sides():
    assert play_acts(0, "SAY A", "SAY A", "TRADE A FOR A", "TRADE A FOR A").payoffs() == {"first": 1.0, "second": 1.0}


@pytest.mark.parametrize("items", [2, 3, 4, 10, 26])
def test_equal_to_openspiel(items):
    spiel = pyspiel.load_game("trade_comm", {"num_items": items})
    rng, game, payoffs = np.random.default_rng(items), games.make("trade_comm", num_items=items), set()
    for seed in range(200):
        spiel_state, deal = spiel.new_initial_state(), int(rng.integers(items**2))
        game.reset(seed=seed, options={"chance": [deal]})
        spiel_state.apply_action(deal)
        items_held = divmod(deal, items)
        while not spiel_state.is_terminal():
            player = spiel_state.current_player()
            assert game.agent_selection == game.seats[player] and not game.ended
            assert game.private(game.agent_selection) == {"item": chr(65 + items_held[player])}
            action = int(rng.choice(spiel_state.legal_actions()))
            if action >= items and seed % 2:  # half of the matches trade well
                action = items + items_held[player] * items + items_held[1 - player]
            assert len(game.infos[game.agent_selection]["legal"]) == len(spiel_state.legal_actions())
            a, b = divmod(action - items, items)
            game.step(f"SAY {chr(65 + action)}" if action < items else f"TRADE {chr(65 + a)} FOR {chr(65 + b)}")
            spiel_state.apply_action(action)
        assert game.ended and list(game.payoffs().values()) == spiel_state.returns()
        payoffs.add(spiel_state.returns()[0])
    assert payoffs == {0.0, 1.0}


def capture_view(game, seat):
    return game.public(), game.private(seat), game.observe(seat), game.legal(seat)


def test_items_and_the_first_trade_are_private_and_words_are_not():
    views: dict[Any, Any] = {}
    for deal in range(16):
        for trade in ("TRADE A FOR B", "TRADE C FOR C"):
            game = play_acts(deal, "SAY C", "SAY A")
            assert game.public() == {"said": {"first": "C", "second": "A"}}
            assert [m["text"] for m in game.observe("second")["messages"]] == []
            game.step(trade)
            views.setdefault(deal % 4, []).append(capture_view(game, "second"))
    for item, item_views in views.items():
        assert len(item_views) == 8 and all(view == item_views[0] for view in item_views)
        assert item_views[0][1] == {"item": "ABCD"[item]}
    game = play_acts(5, "SAY C")
    assert game.observe("second")["messages"] == ({"sender": "first", "text": "SAY C"},)


def test_talk_is_off_unless_given():
    assert play_acts(5, "SAY C | I have B").observe("second")["messages"][0]["text"] == "SAY C"
    assert "I have B" in play_acts(5, "SAY C | I have B", talk=True).observe("second")["messages"][0]["text"]


def test_theory():
    """Find the best silent value over all pairs of plans, which map a side's own item to the item it wants."""
    theory = games.make("trade_comm").theory
    payoffs = np.zeros(
        (4, 4, 4, 4)
    )  # axes: first's item, second's item, item wanted by the first, item wanted by the second
    for first_item, second_item, first_want, second_want in itertools.product(range(4), repeat=4):
        trades = [
            f"TRADE {'ABCD'[give]} FOR {'ABCD'[get]}"
            for give, get in ((first_item, first_want), (second_item, second_want))
        ]
        payoffs[first_item, second_item, first_want, second_want] = play_acts(
            4 * first_item + second_item, "SAY A", "SAY A", *trades
        ).payoffs()["first"]
    assert payoffs.max(axis=(2, 3)).mean() == theory["best"] == 1
    best = 0.0
    for plan in itertools.product(range(4), repeat=4):
        plan_payoffs = np.array(
            [payoffs[first_item, :, first_want, :] for first_item, first_want in enumerate(plan)]
        ).sum(0)  # second's item x its wish
        best = max(best, plan_payoffs.max(axis=1).sum() / 16)  # the second side's best answer to this plan
    assert best == theory["best_silent"]


def test_refuses_invalid_options():
    for num_items in (1, 27, 2.0, "4"):
        with pytest.raises(ValueError, match="num_items must be a whole number from 2 to 26"):
            games.make("trade_comm", num_items=num_items)
