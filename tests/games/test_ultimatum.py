"""The ultimatum: transfers, and the subgame perfect splits by backward induction through the game itself."""

import itertools

import pytest

from games.ultimatum import Ultimatum


def play_ultimatum(pie, offer, answer):
    game = Ultimatum(pie=pie)
    game.reset(seed=0)
    game.step(f"offer {offer}")
    game.step(answer)
    return game


@pytest.mark.parametrize("pie", [1, 2, 7])
def test_accepted_offers_are_paid_and_rejected_ones_are_not(pie):
    for offer in range(pie + 1):
        game = play_ultimatum(pie, offer, "accept")
        assert game.payoffs() == {"proposer": pie - offer, "responder": offer}
        assert game.report() == {"ended": "deal", "turns": 2, "deal": True, "offered": offer / pie}
        game = play_ultimatum(pie, offer, "REJECT | no")
        assert game.payoffs() == {"proposer": 0, "responder": 0} and game.report()["ended"] == "rejected"


def test_subgame_perfect_splits():
    pie, theory = 10, Ultimatum.theory
    payoffs = {
        (offer, answer): tuple(play_ultimatum(pie, offer, answer).payoffs().values())
        for offer, answer in itertools.product(range(pie + 1), ("ACCEPT", "REJECT"))
    }
    best_answers = []  # by offer, the responder's best answers
    for offer in range(pie + 1):
        best_payoff = max(payoffs[offer, answer][1] for answer in ("ACCEPT", "REJECT"))
        best_answers.append([answer for answer in ("ACCEPT", "REJECT") if payoffs[offer, answer][1] == best_payoff])
    equilibria = set()
    for plan in itertools.product(*best_answers):
        gains = [payoffs[offer, answer][0] for offer, answer in enumerate(plan)]
        equilibria |= {(offer, plan[offer], gain) for offer, gain in enumerate(gains) if gain == max(gains)}
    assert equilibria == {(0, "ACCEPT", theory["most_proposer_payoff"]), (1, "ACCEPT", theory["least_proposer_payoff"])}
    assert {offer for offer, _, _ in equilibria} == {
        theory["least_equilibrium_offer"],
        theory["most_equilibrium_offer"],
    }


def test_acts_and_views():
    game = Ultimatum(pie=3)
    game.reset(seed=0)
    assert game.infos["proposer"]["legal"] == ["OFFER 0", "OFFER 1", "OFFER 2", "OFFER 3"]
    assert game.public() == {"pie": 3, "offer": None}
    for act in ("ACCEPT", "OFFER 4", "OFFER", "OFFER -1", "OFFER ٢"):
        copy = game.clone()
        copy.step(act)
        assert copy.infos["proposer"]["valid"] is False and copy.offer is None
    game.step("OFFER 2 | half, nearly")
    assert game.infos["responder"]["legal"] == ["ACCEPT", "REJECT"] and game.public()["offer"] == 2
    assert game.observe("responder")["messages"] == ({"sender": "proposer", "text": "OFFER 2 | half, nearly"},)
    game.step("OFFER 1")
    assert game.infos["responder"]["valid"] is False and not game.ended
    game.step("maybe")
    assert game.report() == {"ended": "illegal", "turns": 1, "deal": False, "offered": 2 / 3}


@pytest.mark.parametrize("pie", [0, -1, 2.0, True, "ten"])
def test_refuses_invalid_pies(pie):
    with pytest.raises(ValueError, match=r"^pie must be "):
        Ultimatum(pie=pie)
