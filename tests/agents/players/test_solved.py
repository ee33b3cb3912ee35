"""Solved games: equilibria that no best response beats, sampled by the seed and by own information only."""

import collections

import pyspiel
import pytest

import games
from agents.players.search import Minimax
from agents.players.simple import Random
from agents.players.solved import (
    MixedStrategyPlayer,
    compute_cfr_strategy,
    kuhn_strategy,
    make_cfr,
    make_nash,
    solve_equilibrium,
)
from games.kuhn_poker import KuhnPoker
from tests.factories.seated import make_view, play_match

KUHN = pyspiel.load_game("kuhn_poker")


def compute_value(game, strategy):
    """Return the first seat's expected payoff when both follow the strategy."""

    def of(state):
        if state.is_terminal():
            return state.returns()[0]
        known = None if state.is_chance_node() else state.information_state_string()
        outcomes = strategy[known] if known is not None else state.chance_outcomes()
        return sum(p * of(state.child(action)) for action, p in outcomes if p)

    return of(game.new_initial_state())


@pytest.mark.parametrize("alpha", [0, 0.1, 1 / 6, 0.2, 1 / 3])
def test_kuhns_family_cannot_be_beaten(alpha):
    strategy = kuhn_strategy(alpha)
    assert abs(pyspiel.nash_conv(KUHN, strategy)) < 1e-12
    assert compute_value(KUHN, strategy) == pytest.approx(-1 / 18, abs=1e-12)


def test_beyond_the_family_it_can():
    assert pyspiel.nash_conv(KUHN, {**kuhn_strategy(1 / 3), "0": [(0, 0.5), (1, 0.5)]}) > 0.01


@pytest.mark.parametrize(
    ("name", "worth"),
    [
        ("kuhn_poker", -1 / 18),
        ("leduc_poker", -0.085606),  # the value that CFR+ converges to, in six decimals
        ("turn_based_simultaneous_game(game=matrix_rps())", 0),
        ("liars_dice(dice_sides=3)", None),
    ],
)
def test_linear_programming_finds_equilibria(name, worth):
    game, strategy = pyspiel.load_game(name), solve_equilibrium(name)
    assert abs(pyspiel.nash_conv(game, strategy)) < 1e-9
    assert worth is None or compute_value(game, strategy) == pytest.approx(worth, abs=1e-6)


def test_cfr_comes_close_and_closer():
    gaps = [pyspiel.nash_conv(KUHN, compute_cfr_strategy("kuhn_poker", n)) for n in (10, 100, 1000)]
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 0.003
    assert compute_cfr_strategy("kuhn_poker", 1000) is compute_cfr_strategy("kuhn_poker", 1000)


@pytest.mark.slow
def test_cfr_on_leduc():
    assert pyspiel.nash_conv(pyspiel.load_game("leduc_poker"), compute_cfr_strategy("leduc_poker", 1000)) < 0.03


def test_acts_are_drawn_by_the_strategy():
    game = KuhnPoker()
    game.reset(options={"chance": [0, 1]})  # a jack, to be bet with chance 0.3
    acts = collections.Counter(
        MixedStrategyPlayer(seed, game, kuhn_strategy(0.3)).act(make_view(game)) for seed in range(1000)
    )
    assert set(acts) == {"BET", "PASS"} and 250 < acts["BET"] < 350
    assert MixedStrategyPlayer(5, game, kuhn_strategy(0.3)).act(make_view(game)) == MixedStrategyPlayer(
        5, game, kuhn_strategy(0.3)
    ).act(make_view(game))


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_what_others_hold_changes_nothing(name):
    game = games.make(name)
    for seed in range(30):
        for own, first, two in ((0, 1, 2), (2, 1, 0)):
            acts = []
            for second in (first, two):
                game.reset(options={"chance": [own, second]})
                acts.append(make_nash(seed, game, None).act(make_view(game)))
            assert acts[0] == acts[1]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("make", [lambda s, g: make_nash(s, g, None), lambda s, g: make_cfr(s, g, 100)])
def test_they_play_matches(make):
    for name in ("kuhn_poker", "leduc_poker"):
        game, total = games.make(name), 0.0
        for seed in range(100):
            game.reset(seed=seed)
            actual, other = game.seats[seed % 2], game.seats[1 - seed % 2]
            play_match(game, {actual: make(seed, game), other: Random(seed)})
            total += game.payoffs()[actual]
        assert total > 0


def test_where_nothing_is_hidden_it_is_minimax():
    game = games.make("tic_tac_toe")
    game.reset(seed=0)
    assert isinstance(make_nash(0, game, None), Minimax)
    assert play_match(game, {seat: make_nash(0, game, None) for seat in game.seats}) == (0, 0)
