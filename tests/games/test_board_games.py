"""Tic-tac-toe, connect four, breakthrough and nim: values by exhaustive search, matches played by hand, draws."""

import functools
import itertools
import operator

import pytest

import games


def compute_minimax_value(game):
    """Return the first player's minimax value of the initial position."""
    values = {}

    def evaluate(state):
        if state.is_terminal():
            return state.player_return(0)
        position = state.current_player(), str(state)
        if position not in values:
            sign, best = (1 if position[0] == 0 else -1), -1
            for action in state.legal_actions():
                best = max(best, sign * evaluate(state.child(action)))
                if best == 1:
                    break
            values[position] = sign * best
        return values[position]

    game.reset(seed=0)
    return evaluate(game.state)


def play_acts(game, *acts):
    """Play the acts and return the seat to move."""
    game.reset(seed=0)
    for act in acts:
        assert not game.ended
        game.step(act)
        assert "illegal" not in game.render()
    return game.agent_selection


@pytest.mark.parametrize(
    ("name", "options", "theory"),
    [
        ("tic_tac_toe", {}, "value"),
        ("connect_four", {"rows": 4, "columns": 4}, "value_4x4"),
        ("connect_four", {"rows": 4, "columns": 4, "connect": 3}, "value_connect_3_on_4x4"),
        ("breakthrough", {"rows": 4, "columns": 2}, "value_4x2"),
        ("breakthrough", {"rows": 5, "columns": 3}, "value_5x3"),
        ("breakthrough", {"rows": 5, "columns": 4}, "value_5x4"),
        ("nim", {}, "value"),
        ("nim", {"misere": True}, "value"),
    ],
)
def test_values_by_minimax(name, options, theory):
    assert compute_minimax_value(games.make(name, **options)) == games.GAMES[name].theory[theory]


@pytest.mark.parametrize("misere", [False, True])
def test_nim_follows_boutons_theorem(misere):
    for piles in itertools.combinations_with_replacement(range(1, 6), 3):
        is_lost = functools.reduce(operator.xor, piles) == (misere and max(piles) == 1)
        assert compute_minimax_value(games.make("nim", piles=piles, misere=misere)) == (-1 if is_lost else 1)


def test_tic_tac_toe_by_hand():
    game = games.make("tic_tac_toe")
    assert play_acts(game, "PLAY 5", "PLAY 1", "PLAY 3") == "second"
    assert game.public() == {"board": "O2X/4X6/789"}
    assert [game.private(seat)["mark"] for seat in game.seats] == ["X", "O"]
    assert game.infos["second"]["legal"] == ["PLAY 2", "PLAY 4", "PLAY 6", "PLAY 7", "PLAY 8", "PLAY 9"]
    game.step("PLAY 9")
    game.step("PLAY 7")
    assert game.public() == {"board": "O2X/4X6/X8O"} and game.ended == "win"
    assert game.payoffs() == {"first": 1.0, "second": -1.0}
    assert game.observe("second")["messages"][-1]["text"] == "The match is over: first won."
    play_acts(game, "PLAY 1", "PLAY 4", "PLAY 2", "PLAY 5", "PLAY 9", "PLAY 6")
    assert game.payoffs() == {"first": -1.0, "second": 1.0} and game.rewards == {"first": -1.0, "second": 1.0}


def test_connect_four_by_hand():
    game = games.make("connect_four")
    play_acts(game, "DROP 4", "DROP 4", "DROP 3", "DROP 3", "DROP 2", "DROP 2")
    assert game.public() == {"board": "......./......./......./......./.OOO.../.XXX..."}
    game.step("DROP 1")
    assert game.payoffs() == {"first": 1.0, "second": -1.0} and game.ended == "win"
    play_acts(game, *["DROP 7"] * 6)
    assert "DROP 7" not in game.infos["first"]["legal"] and len(game.infos["first"]["legal"]) == 6
    diagonal = "DROP 1", "DROP 2", "DROP 2", "DROP 3", "DROP 3", "DROP 4", "DROP 3", "DROP 4", "DROP 4", "DROP 6"
    play_acts(game, *diagonal)
    assert game.public() == {"board": "......./......./......./..XX.../.XXO.../XOOO.O."}
    game.step("DROP 4")
    assert game.public()["board"].split("/")[2] == "...X..." and game.payoffs()["first"] == 1.0


@pytest.mark.parametrize(
    ("name", "options", "acts"),
    [
        ("tic_tac_toe", {}, [f"PLAY {cell}" for cell in (1, 2, 3, 5, 4, 6, 8, 7, 9)]),
        ("connect_four", {"rows": 2, "columns": 3, "connect": 3}, [f"DROP {n}" for n in (1, 2, 3, 1, 2, 3)]),
    ],
)
def test_draw_pays_both_the_option_value(name, options, acts):
    default_game, paid_game = games.make(name, **options), games.make(name, draw=0.1, **options)
    for game, reward in (default_game, 0.0), (paid_game, 0.1):
        play_acts(game, *acts)
        assert game.ended == "draw" and game.payoffs() == game.rewards == {"first": reward, "second": reward}
        assert game.observe(game.seats[0])["messages"][-1]["text"] == "The match is over: a draw."
    assert "A draw pays both 0.1." in paid_game.rules() and "pays" not in default_game.rules()
    play_acts(paid_game, *acts[:-2])
    assert paid_game.payoffs() == {"first": 0.0, "second": 0.0}  # nothing before the end


def test_a_decided_match_pays_no_draw():
    game = games.make("tic_tac_toe", draw=0.1)
    play_acts(game, "PLAY 1", "PLAY 4", "PLAY 2", "PLAY 5", "PLAY 3")
    assert game.payoffs() == {"first": 1.0, "second": -1.0}


def test_breakthrough_by_hand():
    game = games.make("breakthrough", columns=3)
    assert play_acts(game, "a5a4", "c2c3") == "first"
    assert game.public() == {"board": "6 bbb/5 .bb/4 b../3 ..w/2 ww./1 www/  abc"} and "such as a5a4" in game.rules()
    assert game.infos["first"]["legal"] == ["a6a5", "b6a5", "b5b4", "b5c4", "c5b4", "c5c4", "a4a3", "a4b3"]
    assert [game.private(seat)["piece"] for seat in game.seats] == ["b", "w"]
    play_acts(game, "a5a4", "c2c3", "a4a3", "c3c4", "a3b2", "c4b5")  # both capture a piece at the end
    assert game.public() == {"board": "6 bbb/5 .wb/4 .../3 .../2 wb./1 www/  abc"}
    assert "b2b1" not in game.infos["first"]["legal"]  # pieces capture only diagonally
    game.step("b2a1")
    assert game.ended == "win" and game.payoffs() == {"first": 1.0, "second": -1.0}


def test_breakthrough_is_won_by_capturing_every_piece():
    game = games.make("breakthrough", rows=4, columns=2)
    assert play_acts(game) == "first" and game.public() == {"board": "4 bb/3 ../2 ../1 ww/  ab"}
    play_acts(game, "b4b3", "a1a2", "a4a3", "a2b3", "a3a2", "b1a2")
    assert game.public() == {"board": "4 ../3 .w/2 w./1 ../  ab"}
    assert game.ended == "win" and game.payoffs() == {"first": -1.0, "second": 1.0}


@pytest.mark.parametrize(("misere", "winner"), [(False, "first"), (True, "second")])
def test_nim_by_hand(misere, winner):
    game = games.make("nim", piles=[2, 1], misere=misere)
    assert play_acts(game, "take 1 a") == "second"
    assert game.public() == {"piles": {"A": 1, "B": 1}} and game.infos["second"]["legal"] == ["TAKE 1 A", "TAKE 1 B"]
    game.step("TAKE 1 B")
    game.step("TAKE 1 A")
    assert game.payoffs() == {seat: 1.0 if seat == winner else -1.0 for seat in game.seats}
    assert f"last thing of all {'loses' if misere else 'wins'}" in game.rules()
