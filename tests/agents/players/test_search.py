"""Search players: exact in small games, never missing a win or loss in one move, and reproducible by the seed."""

import random
from typing import Any

import pytest
from pettingzoo.utils import BaseWrapper

import games
from agents.errors import ScriptedPolicyError
from agents.players.positions import ClonePosition, SpielPosition
from agents.players.scripted import check_scripted, make_scripted
from agents.players.search import DISCOUNT, CloneMcts, Minimax, SpielMcts, make_mcts
from agents.players.simple import Random
from tests.factories.seated import make_view, play_match


class PlainGame(BaseWrapper):  # type: ignore[misc]
    """Game as an AEC environment only, without OpenSpiel's state."""

    def clone(self):
        return PlainGame(self.env.clone())


def replay_acts(name, acts=(), seed=0, **options):
    game = games.make(name, **options)
    game.reset(seed=seed)
    for act in acts:
        game.step(act)
        assert not game.ended
    return game


def sample_positions(name, plies, count):
    """Return unfinished games of `name` after a number of random acts."""
    rng = random.Random(7)
    positions: list[Any] = []
    while len(positions) < count:
        game = replay_acts(name)
        for _ in range(plies):
            if not game.ended:
                game.step(rng.choice(game.infos[game.agent_selection]["legal"]))
        if not game.ended:
            positions.append(game)
    return positions


def get_sign(value):
    return (value > 1e-6) - (value < -1e-6)


# Minimax


def test_tic_tac_toe_is_a_draw_by_full_search():
    game = replay_acts("tic_tac_toe")
    assert Minimax(0, game).value(SpielPosition(game.state), float("inf"), -9, 9) == 0
    for seed in range(5):
        game.reset(seed=seed)
        assert play_match(game, {seat: Minimax(seed + i, game) for i, seat in enumerate(game.seats)}) == (0, 0)


def test_minimax_never_loses_to_random():
    game, lost, won = games.make("tic_tac_toe"), 0, 0
    for seed in range(200):
        game.reset(seed=seed)
        actual = game.seats[seed % 2]
        other = game.seats[1 - seed % 2]
        play_match(game, {actual: Minimax(seed, game), other: Random(seed)})
        lost += game.payoffs()[actual] < 0
        won += game.payoffs()[actual] > 0
    assert lost == 0 and won > 150


def test_clones_and_openspiel_agree_on_every_act():
    for game in sample_positions("tic_tac_toe", 4, 12):
        by_state = Minimax(0, game).values(SpielPosition(game.state, game))
        by_clone = Minimax(0, game).values(ClonePosition(game))
        best = {game.word(act) for act, value in by_state.items() if value >= max(by_state.values()) - 1e-9}
        assert best == {act for act, value in by_clone.items() if value >= max(by_clone.values()) - 1e-9}
        assert max(by_state.values()) == pytest.approx(max(by_clone.values()))


def test_values_agree_with_openspiels_own_alpha_beta():
    from open_spiel.python.algorithms import minimax

    for game in sample_positions("tic_tac_toe", 3, 15):
        reference, _ = minimax.alpha_beta_search(game.spiel, state=game.state)
        ours = Minimax(0, game).values(SpielPosition(game.state, game))
        assert get_sign(max(ours.values())) == reference


def test_nim_is_won_by_its_theory():
    for seed in range(3):
        game = replay_acts("nim")
        value = Minimax(seed, game).value(SpielPosition(game.state), float("inf"), -9, 9)
        game.reset(seed=seed)
        payoffs = play_match(game, {seat: Minimax(seed, game) for seat in game.seats})
        assert get_sign(value) == get_sign(payoffs[0]) != 0


def test_a_win_now_is_preferred_to_a_later_one():
    # X has two in the top row; other acts of X's win too, but later.
    game = replay_acts("tic_tac_toe", ["PLAY 1", "PLAY 4", "PLAY 2", "PLAY 9"])
    assert {Minimax(seed, game).act(make_view(game)) for seed in range(10)} == {"PLAY 3"}
    values = Minimax(0, game).values(SpielPosition(game.state, game))
    assert max(values.values()) == DISCOUNT


def test_the_seed_picks_among_equals():
    game = replay_acts("tic_tac_toe")
    openings = [Minimax(seed, game).act(make_view(game)) for seed in range(40)]
    assert set(openings) == set(game.infos["first"]["legal"])  # every opening draws
    assert openings == [Minimax(seed, game).act(make_view(game)) for seed in range(40)]


@pytest.mark.parametrize("depth", [2, 4])
def test_a_few_acts_ahead_see_wins_and_threats(depth):
    threatened = replay_acts("connect_four", ["DROP 4", "DROP 1", "DROP 4", "DROP 1", "DROP 4"])
    assert Minimax(1, threatened, depth).act(make_view(threatened)) == "DROP 4"
    winning = replay_acts("connect_four", ["DROP 4", "DROP 1", "DROP 4", "DROP 1", "DROP 4", "DROP 2"])
    assert Minimax(1, winning, depth).act(make_view(winning)) == "DROP 4"


def test_the_game_is_left_as_it_was():
    for make in (
        Minimax,
        lambda seed, game: make_mcts(seed, game, (20, 2)),
        lambda s, g: CloneMcts(s, PlainGame(g), 20, 2),
    ):
        game = replay_acts("tic_tac_toe", ["PLAY 5"])
        before = (str(game.state), game.agent_selection, game.infos, game.rng.bit_generator.state)
        make(0, game).act(make_view(game))
        assert before == (str(game.state), game.agent_selection, game.infos, game.rng.bit_generator.state)


# Monte Carlo tree search


def make_searchers(game, seed, simulations=100):
    return SpielMcts(seed, game, simulations, 10), CloneMcts(seed, PlainGame(game), simulations, 4)


def test_wins_and_threats_in_one_are_seen():
    acts = ["DROP 4", "DROP 1", "DROP 4", "DROP 1", "DROP 4"]
    for seed in range(5):
        threatened, winning = replay_acts("connect_four", acts), replay_acts("connect_four", [*acts, "DROP 2"])
        assert make_mcts(seed, threatened, (100, 10)).act(make_view(threatened)) == "DROP 4"
        assert make_mcts(seed, winning, (100, 10)).act(make_view(winning)) == "DROP 4"
    threatened = replay_acts("tic_tac_toe", ["PLAY 1", "PLAY 5", "PLAY 2"])
    winning = replay_acts("tic_tac_toe", ["PLAY 1", "PLAY 5", "PLAY 2", "PLAY 9"])
    for game in (threatened, winning):
        assert {script.act(make_view(game)) for seed in range(3) for script in make_searchers(game, seed)} == {"PLAY 3"}


def test_a_hundred_simulations_beat_random():
    game, points = games.make("tic_tac_toe"), []
    for seed in range(60):
        game.reset(seed=seed)
        actual, other = game.seats[seed % 2], game.seats[1 - seed % 2]
        play_match(game, {actual: make_mcts(seed, game, (100, 10)), other: Random(seed)})
        points.append(game.payoffs()[actual])
    assert sum(points) / len(points) > 0.8 and min(points) > -1


def test_the_same_seed_is_the_same_search():
    for simulations in (10, 50):
        acts = []
        for _ in range(2):
            game = replay_acts("tic_tac_toe")
            play_match(game, {seat: make_searchers(game, i, simulations)[i] for i, seat in enumerate(game.seats)})
            acts.append(game.render())
        assert acts[0] == acts[1]
    game = replay_acts("connect_four")
    openings = {SpielMcts(seed, game, 10, 1).act(make_view(game)) for seed in range(20)}
    assert len(openings) > 1


def test_one_simulation_is_enough_to_act():
    game = replay_acts("tic_tac_toe")
    for script in make_searchers(game, 0, simulations=1):
        assert script.act(make_view(game)) in game.infos["first"]["legal"]


def test_every_seat_seeks_its_own_payoff():
    # The ultimatum game is no contest: the responder takes what it is offered, and the proposer knows.
    game = replay_acts("ultimatum")
    offer = int(CloneMcts(0, game, 1000, 1).act(make_view(game)).split()[1])
    pie = game.public()["pie"]
    assert 0 < offer < pie / 2
    game.step(f"OFFER {pie // 2}")
    assert CloneMcts(0, game, 50, 1).act(make_view(game)) == "ACCEPT"


def test_any_seed_of_a_match_is_one_for_openspiel() -> None:
    game = games.make("tic_tac_toe")
    game.reset(seed=0)
    for seed in (2**31, 2**32 - 1):
        assert make_mcts(seed, game, (2, 1)).act(make_view(game)) in (game.legal("first") or ())


def test_positions_of_a_wrapped_game_are_distinguished():
    """Its public facts are only the number of acts; the seats see the rest."""
    keys = set()
    for act in ("0", "1", "2"):
        game = games.make("pettingzoo:tictactoe_v3")
        game.reset(seed=0)
        game.step(act)
        keys.add(ClonePosition(game).key)
    assert len(keys) == 3


@pytest.mark.parametrize("name", ["pettingzoo:tictactoe_v3", "textarena:TicTacToe-v0"])
def test_wrapped_games_in_which_nothing_is_hidden_are_searched(name):
    game = games.make(name)
    check_scripted("mcts:5x1", game)
    check_scripted("minimax:2", game)
    game.reset(seed=0)
    for _ in range(3):
        view = make_view(game)
        game.step(make_scripted("mcts:20x1", 0, game).act(view))
    assert game.turns == 3
    with pytest.raises(ScriptedPolicyError, match="KuhnPoker-v0 hides something"):
        check_scripted("mcts:5x1", games.make("textarena:KuhnPoker-v0"))


def test_refuses_act_pickers_without_listed_acts():
    with pytest.raises(ScriptedPolicyError, match=r"ConnectFour-v0 lists none.*seat a model"):
        check_scripted("random", games.make("textarena:ConnectFour-v0"))
