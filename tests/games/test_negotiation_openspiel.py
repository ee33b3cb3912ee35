"""Negotiation compared with OpenSpiel's `bargaining`: instances, acts, turns and returns."""

import numpy as np
import pytest

from games.families.pools import instances
from games.negotiation import Negotiation

pyspiel = pytest.importorskip("pyspiel")


def convert_instance(instance):
    return tuple(instance.pool), (tuple(instance.values[0]), tuple(instance.values[1]))


@pytest.fixture(scope="module")
def spiel_bargaining(tmp_path_factory):
    """OpenSpiel's game with our 5,793 instances, in our order."""
    lines = [" ".join(",".join(map(str, t)) for t in (pool, *values)) for pool, values in instances()]
    path = tmp_path_factory.mktemp("bargaining") / "instances.txt"
    path.write_text("\n".join(lines) + "\n")
    return pyspiel.load_game("bargaining", {"instances_file": str(path), "max_num_instances": len(lines)})


def play_both(game, spiel_state, rng, accept):
    """Play random legal acts in both games, compare them at every step, and return the end reason."""
    acts, chances = 0, 1  # OpenSpiel's match begins with a chance move
    while not game.ended:
        legal = game.infos[game.agent_selection]["legal"][:-1]  # OpenSpiel has no WALK
        offers = [act for act in legal if act != "ACCEPT"]
        assert len(spiel_state.legal_actions()) == len(legal)
        assert spiel_state.current_player() == game.seats.index(game.agent_selection)
        is_accepting = len(offers) < len(legal) and rng.random() < accept
        act = "ACCEPT" if is_accepting else str(rng.choice(offers))
        if is_accepting:
            spiel_state.apply_action(spiel_state.agree_action())
        else:
            spiel_state.apply_action(spiel_state.get_game().get_offer_by_quantities([*map(int, act.split()[1:])])[1])
        game.step(act)
        acts += 1
        if spiel_state.is_chance_node():  # after a counter-offer that was not the last offer
            (go_on, stay), (end, leave) = spiel_state.chance_outcomes()
            assert (stay, leave) == (1 - game.breakdown, game.breakdown) and acts > 1
            spiel_state.apply_action(end if game.ended == "breakdown" else go_on)
            chances += 1
        assert bool(game.ended) == spiel_state.is_terminal()
    assert spiel_state.returns() == list(game.payoffs().values())
    assert len(spiel_state.history()) - chances == acts == game.report()["turns"]
    return game.ended


def test_our_instances_play_equally_in_openspiel(spiel_bargaining):
    game, end_reasons = Negotiation(), set()
    for seed in range(500):
        rng = np.random.default_rng(seed)
        game.reset(seed=seed)
        instance = game.pool, tuple(game.values.values())
        spiel_state = spiel_bargaining.new_initial_state()
        spiel_state.apply_action(instances().index(instance))
        assert convert_instance(spiel_state.instance()) == instance
        end_reasons.add(play_both(game, spiel_state, rng, accept=0.02 if seed % 2 else 0.2))
    assert end_reasons == {"deal", "turns"}


@pytest.mark.parametrize("breakdown", [0.1, 0.5])
def test_breakdown_is_equal_in_openspiel(breakdown):
    for limit in (1, 2, 3, 10):
        bargaining = pyspiel.load_game("bargaining", {"max_turns": limit, "prob_end": breakdown})
        game, end_reasons = Negotiation(max_turns=limit, breakdown=breakdown), set()
        for index in range(0, 1000, 10):
            spiel_state = bargaining.new_initial_state()
            spiel_state.apply_action(index)
            game.reset(seed=index, options={"instance": convert_instance(spiel_state.instance())})
            end_reasons.add(play_both(game, spiel_state, np.random.default_rng(index), accept=0.1))
        assert end_reasons == {"turns"} | ({"deal"} if limit > 1 else set()) | ({"breakdown"} if limit > 2 else set())


def test_openspiels_instances_play_equally_here():
    known = set(instances())
    for limit in (1, 2, 3, 10):
        bargaining = pyspiel.load_game("bargaining", {"max_turns": limit})
        assert {convert_instance(instance) for instance in bargaining.all_instances()} <= known
        game = Negotiation(max_turns=limit)
        for index in range(0, 1000, 10):
            spiel_state = bargaining.new_initial_state()
            spiel_state.apply_action(index)
            game.reset(seed=0, options={"instance": convert_instance(spiel_state.instance())})
            play_both(game, spiel_state, np.random.default_rng(index), accept=0.15)


def test_instances_match_openspiels_limits(spiel_bargaining):
    assert len(spiel_bargaining.all_instances()) == 5793
    constants = pyspiel.bargaining
    assert (constants.PoolMinNumItems, constants.PoolMaxNumItems, constants.TotalValueAllItems) == (5, 7, 10)
