"""Matrix games: OpenSpiel's payoffs, equilibria by enumeration, scores by hand."""

import itertools
from fractions import Fraction

import pyspiel
import pytest

import games
from games.matrix import BattleOfTheSexes, Chicken, PrisonersDilemma, StagHunt

ALL = (PrisonersDilemma, StagHunt, BattleOfTheSexes, Chicken)
CELLS = tuple(itertools.product((0, 1), repeat=2))
OPENSPIEL = {  # our acts as OpenSpiel's; it lists those of chicken in reverse order
    PrisonersDilemma: ("matrix_pd", {"COOPERATE": "Cooperate", "DEFECT": "Defect"}),
    StagHunt: ("matrix_sh", {"STAG": "Stag", "HARE": "Hare"}),
    BattleOfTheSexes: ("matrix_bos", {"OPERA": "Bach", "FOOTBALL": "Stravinsky"}),
    Chicken: ("matrix_cd", {"SWERVE": "Chicken", "STRAIGHT": "Dare"}),
}


def play_rounds(game, rounds):
    """Play rounds, each given as "row's act column's act"."""
    for row, column in (pair.split() for pair in rounds):
        for _ in game.seats:
            game.step({"row": row, "column": column}[game.agent_selection])
    return game


@pytest.mark.parametrize("kind", ALL)
def test_payoffs_match_openspiel(kind):
    name, words = OPENSPIEL[kind]
    spiel = pyspiel.load_matrix_game(name)
    index = {spiel.row_action_name(i): i for i in (0, 1)}
    assert index == {spiel.col_action_name(i): i for i in (0, 1)}
    for row, column in CELLS:
        game = kind(rounds=1)
        game.reset(seed=0)
        play_rounds(game, [f"{kind.acts[row]} {kind.acts[column]}"])
        state = spiel.new_initial_state()
        state.apply_actions([index[words[kind.acts[row]]], index[words[kind.acts[column]]]])
        assert list(game.payoffs().values()) == state.returns()


def find_pure_equilibria(payoff):
    """Return the cells in which neither seat gains by deviating alone."""
    return [
        (i, j) for i, j in CELLS
        if payoff[i, j][0] >= payoff[1 - i, j][0] and payoff[i, j][1] >= payoff[i, 1 - j][1]
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
def test_theory(kind):
    theory, payoff = kind.theory, kind.payoff
    equilibria = find_pure_equilibria(payoff)
    expected = {PrisonersDilemma: [(1, 1)], StagHunt: [(0, 0), (1, 1)], BattleOfTheSexes: [(0, 0), (1, 1)]}
    assert equilibria == expected.get(kind, [(0, 1), (1, 0)])
    assert theory["pure_equilibria"] == len(equilibria)
    assert theory["best_joint_value"] == max(map(sum, payoff.values()))
    if kind is PrisonersDilemma:
        assert all(payoff[1, j][0] > payoff[0, j][0] and payoff[j, 1][1] > payoff[j, 0][1] for j in (0, 1))
        assert sum(payoff[1, 1]) == theory["equilibrium_joint_value"]
        assert sum(payoff[0, 1]) == sum(payoff[0, 0])  # T + S = 2R
        return
    p = Fraction(theory["mixed_first_act"]).limit_denominator(10)  # row's; makes column indifferent
    column = [p * Fraction(payoff[0, j][1]) + (1 - p) * Fraction(payoff[1, j][1]) for j in (0, 1)]
    assert column[0] == column[1] == Fraction(theory["mixed_payoff"]).limit_denominator(10)
    q = 1 - p if kind is BattleOfTheSexes else p  # column's chance of the first act
    row = [q * Fraction(payoff[i, 0][0]) + (1 - q) * Fraction(payoff[i, 1][0]) for i in (0, 1)]
    assert row[0] == row[1] == column[0]


def test_match_by_hand():
    game = PrisonersDilemma(rounds=4)
    game.reset(seed=0)
    play_rounds(game, ["cooperate cooperate", "COOPERATE DEFECT", "DEFECT DEFECT", "DEFECT COOPERATE"])
    assert game.payoffs() == {"row": 5 + 0 + 1 + 10, "column": 5 + 10 + 1 + 0}
    report = {"ended": "rounds", "turns": 8, "rounds": 4, "joint_value": 8.0, "efficiency": 0.8, "same": 0.5}
    assert game.report() == {**report, "cooperate": 0.5}
    assert "referee: Round 2: row COOPERATE +0, column DEFECT +10." in game.render()
    assert game.public()["history"][1] == ["COOPERATE", "DEFECT"]


def test_each_name_makes_its_game():
    for kind in ALL:
        assert type(games.make(kind.name)) is kind
        assert kind.__dict__["metadata"]["name"] == f"{kind.name}_v0"
        game = kind()
        game.reset(seed=0)
        assert all(act in game.rules() for act in kind.acts) and game.infos["row"]["legal"] == list(kind.acts)


@pytest.mark.parametrize("act", ["ST\ufb06", "\ufb06ag", "STAG HARE", "S TAG", "STAG.", "", "0"])
def test_refuses_other_words(act):
    game = StagHunt()
    game.reset(seed=0)
    game.step(act)
    assert game.infos["row"]["valid"] is False
