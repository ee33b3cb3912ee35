"""TradeComm: payoffs by hand and by OpenSpiel, what each side may know, and what silence can reach."""

import itertools
from typing import Any

import numpy as np
import pyspiel
import pytest

import games


def played(deal, *acts, **options):
    game = games.make("trade_comm", **options)
    game.reset(seed=0, options={"chance": [deal]})
    for act in acts:
        game.step(act)
    return game


@pytest.mark.parametrize(
    ("one", "two", "payoff"),
    [
        ("TRADE B FOR D", "TRADE D FOR B", 1.0),
        ("TRADE B FOR D", "TRADE D FOR C", 0.0),  # the second wants what the first does not give
        ("TRADE B FOR C", "TRADE D FOR B", 0.0),  # and the other way round
        ("TRADE A FOR D", "TRADE D FOR A", 0.0),  # they match, but the first has no A
        ("TRADE B FOR A", "TRADE A FOR B", 0.0),  # the second has no A
        ("TRADE D FOR B", "TRADE B FOR D", 0.0),  # the wrong way round
    ],
)
def test_payoffs_by_hand(one, two, payoff):
    game = played(1 * 4 + 3, "say b", "SAY D", one, f"  {two.lower()} ")  # the first has B, the second D
    assert game.payoffs() == {"first": payoff, "second": payoff}
    assert game.report() == {"ended": "trade" if payoff else "no_trade", "turns": 4, "trade": bool(payoff)}
    last = game.observe("first")["messages"][-1]["text"]
    assert last == f"{'The trade is made' if payoff else 'There is no trade'}: first wrote {one}, second wrote {two}."


def test_the_same_item_may_be_on_both_sides():
    assert played(0, "SAY A", "SAY A", "TRADE A FOR A", "TRADE A FOR A").payoffs() == {"first": 1.0, "second": 1.0}


@pytest.mark.parametrize("items", [2, 3, 4, 10, 26])
def test_equal_to_openspiel(items):
    spiel = pyspiel.load_game("trade_comm", {"num_items": items})
    rng, game, paid = np.random.default_rng(items), games.make("trade_comm", num_items=items), set()
    for seed in range(200):
        theirs, deal = spiel.new_initial_state(), int(rng.integers(items**2))
        game.reset(seed=seed, options={"chance": [deal]})
        theirs.apply_action(deal)
        mine = divmod(deal, items)
        while not theirs.is_terminal():
            player = theirs.current_player()
            assert game.agent_selection == game.seats[player] and not game.ended
            assert game.private(game.agent_selection) == {"item": chr(65 + mine[player])}
            action = int(rng.choice(theirs.legal_actions()))
            if action >= items and seed % 2:  # half of the matches trade well
                action = items + mine[player] * items + mine[1 - player]
            assert len(game.infos[game.agent_selection]["legal"]) == len(theirs.legal_actions())
            a, b = divmod(action - items, items)
            game.step(f"SAY {chr(65 + action)}" if action < items else f"TRADE {chr(65 + a)} FOR {chr(65 + b)}")
            theirs.apply_action(action)
        assert game.ended and list(game.payoffs().values()) == theirs.returns()
        paid.add(theirs.returns()[0])
    assert paid == {0.0, 1.0}


def seen(game, seat):
    return game.public(), game.private(seat), game.observe(seat), game.legal(seat)


def test_items_and_the_first_trade_are_private_and_words_are_not():
    views: dict[Any, Any] = {}
    for deal in range(16):
        for trade in ("TRADE A FOR B", "TRADE C FOR C"):
            game = played(deal, "SAY C", "SAY A")
            assert game.public() == {"said": {"first": "C", "second": "A"}}
            assert [m["text"] for m in game.observe("second")["messages"]] == []
            game.step(trade)
            views.setdefault(deal % 4, []).append(seen(game, "second"))
    for item, same in views.items():
        assert len(same) == 8 and all(view == same[0] for view in same)
        assert same[0][1] == {"item": "ABCD"[item]}
    game = played(5, "SAY C")
    assert game.observe("second")["messages"] == ({"sender": "first", "text": "SAY C"},)


def test_talk_is_off_unless_given():
    assert played(5, "SAY C | I have B").observe("second")["messages"][0]["text"] == "SAY C"
    assert "I have B" in played(5, "SAY C | I have B", talk=True).observe("second")["messages"][0]["text"]


def test_theory():
    """Best silent: over all pairs of plans, what each side wants given its own item, as the game pays."""
    theory = games.make("trade_comm").theory
    pays = np.zeros((4, 4, 4, 4))  # first's item, second's item, what the first wants, what the second wants
    for mine, other, want, wish in itertools.product(range(4), repeat=4):
        trades = [f"TRADE {'ABCD'[give]} FOR {'ABCD'[get]}" for give, get in ((mine, want), (other, wish))]
        pays[mine, other, want, wish] = played(4 * mine + other, "SAY A", "SAY A", *trades).payoffs()["first"]
    assert pays.max(axis=(2, 3)).mean() == theory["best"] == 1
    best = 0.0
    for plan in itertools.product(range(4), repeat=4):
        of = np.array([pays[mine, :, want, :] for mine, want in enumerate(plan)]).sum(0)  # second's item x its wish
        best = max(best, of.max(axis=1).sum() / 16)  # the second side's best answer to this plan
    assert best == theory["best_silent"]


def test_options():
    for bad in (1, 27, 2.0, "4"):
        with pytest.raises(ValueError, match="num_items must be a whole number from 2 to 26"):
            games.make("trade_comm", num_items=bad)
