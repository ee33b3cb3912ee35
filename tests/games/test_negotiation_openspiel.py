"""Negotiation against OpenSpiel's `bargaining`: same instances and acts, same turns and returns."""

import numpy as np
import pytest

from games.families.pools import instances
from games.negotiation import Negotiation

pyspiel = pytest.importorskip("pyspiel")


def as_ours(instance):
    return tuple(instance.pool), (tuple(instance.values[0]), tuple(instance.values[1]))


@pytest.fixture(scope="module")
def all_of_ours(tmp_path_factory):
    """OpenSpiel's game over our 5,793 instances, in our order."""
    lines = [" ".join(",".join(map(str, t)) for t in (pool, *values)) for pool, values in instances()]
    path = tmp_path_factory.mktemp("bargaining") / "instances.txt"
    path.write_text("\n".join(lines) + "\n")
    return pyspiel.load_game("bargaining", {"instances_file": str(path), "max_num_instances": len(lines)})


def replay(game, theirs, rng, accept):
    """Plays random legal acts in both games, comparing them at every step; how it ended."""
    acts, chances = 0, 1  # theirs begins with one
    while not game.ended:
        legal = game.infos[game.agent_selection]["legal"][:-1]  # OpenSpiel knows no WALK
        offers = [act for act in legal if act != "ACCEPT"]
        assert len(theirs.legal_actions()) == len(legal)
        assert theirs.current_player() == game.seats.index(game.agent_selection)
        accepting = len(offers) < len(legal) and rng.random() < accept
        act = "ACCEPT" if accepting else str(rng.choice(offers))
        if accepting:
            theirs.apply_action(theirs.agree_action())
        else:
            theirs.apply_action(theirs.get_game().get_offer_by_quantities([*map(int, act.split()[1:])])[1])
        game.step(act)
        acts += 1
        if theirs.is_chance_node():  # after an offer that answered another one, and was not the last
            (go_on, stay), (end, leave) = theirs.chance_outcomes()
            assert (stay, leave) == (1 - game.breakdown, game.breakdown) and acts > 1
            theirs.apply_action(end if game.ended == "breakdown" else go_on)
            chances += 1
        assert bool(game.ended) == theirs.is_terminal()
    assert theirs.returns() == list(game.payoffs().values())
    assert len(theirs.history()) - chances == acts == game.report()["turns"]
    return game.ended


def test_our_instances_played_in_both(all_of_ours):
    game, ends = Negotiation(), set()
    for seed in range(500):
        rng = np.random.default_rng(seed)
        game.reset(seed=seed)
        instance = game.pool, tuple(game.values.values())
        theirs = all_of_ours.new_initial_state()
        theirs.apply_action(instances().index(instance))
        assert as_ours(theirs.instance()) == instance
        ends.add(replay(game, theirs, rng, accept=0.02 if seed % 2 else 0.2))
    assert ends == {"deal", "turns"}


@pytest.mark.parametrize("breakdown", [0.1, 0.5])
def test_the_same_risk_of_breakdown(breakdown):
    for limit in (1, 2, 3, 10):
        bargaining = pyspiel.load_game("bargaining", {"max_turns": limit, "prob_end": breakdown})
        game, ends = Negotiation(max_turns=limit, breakdown=breakdown), set()
        for index in range(0, 1000, 10):
            theirs = bargaining.new_initial_state()
            theirs.apply_action(index)
            game.reset(seed=index, options={"instance": as_ours(theirs.instance())})
            ends.add(replay(game, theirs, np.random.default_rng(index), accept=0.1))
        assert ends == {"turns"} | ({"deal"} if limit > 1 else set()) | ({"breakdown"} if limit > 2 else set())


def test_their_instances_played_in_both():
    known = set(instances())
    for limit in (1, 2, 3, 10):
        bargaining = pyspiel.load_game("bargaining", {"max_turns": limit})
        assert {as_ours(instance) for instance in bargaining.all_instances()} <= known
        game = Negotiation(max_turns=limit)
        for index in range(0, 1000, 10):
            theirs = bargaining.new_initial_state()
            theirs.apply_action(index)
            game.reset(seed=0, options={"instance": as_ours(theirs.instance())})
            replay(game, theirs, np.random.default_rng(index), accept=0.15)


def test_our_instances_are_all_that_their_rules_allow(all_of_ours):
    assert len(all_of_ours.all_instances()) == 5793
    constants = pyspiel.bargaining
    assert (constants.PoolMinNumItems, constants.PoolMaxNumItems, constants.TotalValueAllItems) == (5, 7, 10)
