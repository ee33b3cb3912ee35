"""Strategies of two-by-two games: known tournament scores, and play in all four games."""

import itertools
import statistics

import pytest

import games
from agents.players.matrix_players import GAMES, GENEROSITY, SCRIPTED
from games.matrix import MatrixGame, PrisonersDilemma
from tests.factories.seated import make_view, play_match


def play_strategies(first, two, game="prisoners_dilemma", seed=0, **options):
    """Play two strategies at row and column, by default ten rounds."""
    table = games.make(game, **{"rounds": 10, **options})
    assert isinstance(table, MatrixGame)
    table.reset(seed=seed)
    play_match(table, {"row": SCRIPTED[first](seed), "column": SCRIPTED[two](seed + 1)})
    return table


TOURNAMENT = {  # ten rounds of 5, 0, 10, 1
    ("always_defect", "always_cooperate"): (100, 0),
    ("always_cooperate", "always_cooperate"): (50, 50),
    ("always_defect", "always_defect"): (10, 10),
    ("tit_for_tat", "grim"): (50, 50),
    ("tit_for_tat", "always_defect"): (9, 19),
    ("tit_for_two_tats", "always_defect"): (8, 28),
    ("grim", "always_defect"): (9, 19),
    ("pavlov", "always_defect"): (5, 55),  # cooperates in every second round
    ("tit_for_tat", "alternator"): (45, 55),
    ("tit_for_two_tats", "alternator"): (25, 75),
    ("grim", "alternator"): (49, 19),
    ("pavlov", "alternator"): (37, 47),
    ("always_cooperate", "alternator"): (25, 75),
}


@pytest.mark.parametrize(("pair", "scores"), TOURNAMENT.items())
def test_scores_worked_by_hand(pair, scores):
    assert tuple(play_strategies(*pair).payoffs().values()) == scores
    assert tuple(play_strategies(*reversed(pair)).payoffs().values()) == scores[::-1]


def test_nice_strategies_cooperate_among_themselves_throughout():
    nice = ["tit_for_tat", "tit_for_two_tats", "generous_tit_for_tat", "grim", "pavlov", "always_cooperate"]
    for pair in itertools.combinations_with_replacement(nice, 2):
        assert play_strategies(*pair).report()["cooperate"] == 1


def test_pavlov_mends_a_mistake_and_grim_does_not():
    for name, after in (("pavlov", [["DEFECT", "DEFECT"], ["COOPERATE", "COOPERATE"]]), ("grim", None)):
        game = PrisonersDilemma(rounds=8)
        game.reset(seed=0)
        scripted = {seat: SCRIPTED[name](0) for seat in game.seats}
        while not game.ended:
            mistake = len(game.history) == 2 and game.agent_selection == "column"
            game.step("DEFECT" if mistake else scripted[game.agent_selection].act(make_view(game)))
        assert game.history[2] == ["COOPERATE", "DEFECT"]
        if after:
            assert game.history[3:5] == after and game.history[5:] == [["COOPERATE"] * 2] * 3
        else:
            assert game.history[3] == ["DEFECT", "COOPERATE"] and game.history[4:] == [["DEFECT"] * 2] * 4


def test_random_strategies_have_their_frequency_and_follow_the_seed():
    for name, share in (("generous_tit_for_tat", GENEROSITY), ("mostly_cooperate", 0.9)):
        rates = []
        for seed in range(40):
            game = play_strategies(name, "always_defect", seed=seed, rounds=51)
            assert game.history == play_strategies(name, "always_defect", seed=seed, rounds=51).history
            rates.append(statistics.fmean(row == "COOPERATE" for row, _ in game.history[1:]))
        assert statistics.fmean(rates) == pytest.approx(share, abs=5 * (share * (1 - share) / 2000) ** 0.5)


@pytest.mark.parametrize("name", ["prisoners_dilemma", "stag_hunt", "battle_of_the_sexes", "chicken"])
def test_every_strategy_plays_every_matrix_game_from_both_seats(name):
    assert all(name in GAMES[script] for script in SCRIPTED) and set(GAMES) == set(SCRIPTED)
    game_class = games.GAMES[name]
    assert issubclass(game_class, MatrixGame)
    first, second = game_class.acts
    for one, two in itertools.product(SCRIPTED, repeat=2):
        game = play_strategies(one, two, name, rounds=4)
        assert game.report()["ended"] == "rounds"
        if one == two == "always_defect":
            assert game.history == [[second, second]] * 4
    copied = [row for row, _ in play_strategies("alternator", "tit_for_tat", name).history]
    assert copied == [first, second] * 5
    assert [column for _, column in play_strategies("alternator", "tit_for_tat", name).history] == [first, *copied[:-1]]
