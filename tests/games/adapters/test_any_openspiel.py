"""Every game of OpenSpiel as a text game: what plays, what is refused and how, what stays hidden."""

import json
import subprocess
import sys

import numpy as np
import pytest

from games.adapters.openspiel import AnyOpenSpiel
from games.families.openspiel import load

REFUSED = {
    "bridge_uncontested_bidding", "negotiation", "stones_and_gems", "tarok",  # hidden chance events
    "mfg_crowd_modelling", "mfg_crowd_modelling_2d", "mfg_dynamic_routing", "mfg_garnet",
    "crossword",  # lists no acts
    "add_noise", "cached_tree", "efg_game", "misere", "nfg_game", "normal_form_extensive_game", "repeated_game",
    "repeated_poker", "restricted_nash_response", "start_at", "turn_based_simultaneous_game", "zerosum",  # of a game
}  # fmt: skip
"""What cannot be played by its bare name."""

SAMPLE = [
    "2048", "backgammon", "battleship", "bridge", "capture_the_flag", "catch", "chess", "coin_game", "connect_four",
    "coop_box_pushing", "crazy_eights", "cribbage", "dark_hex", "dots_and_boxes", "euchre", "first_sealed_auction",
    "gin_rummy", "go(board_size=5)", "go_fish", "goofspiel(num_cards=4)", "hearts", "hex(board_size=4)", "hive",
    "kuhn_poker(players=3)", "matching_pennies_3p", "matrix_pd", "misere(game=tic_tac_toe())", "nine_mens_morris",
    "oh_hell(players=4)", "othello", "oware", "phantom_ttt", "pig(players=3)", "quoridor", "rbc", "sheriff", "skat",
    "social_deduction", "spades", "tiny_bridge_4p", "twixt", "ultimate_tic_tac_toe", "universal_poker", "yacht",
    "repeated_game(stage_game=matrix_rps(),num_repetitions=3)", "start_at(history=4;0,game=tic_tac_toe())",
]  # fmt: skip


def match(name, seed=1):
    """One match of random acts, checked against OpenSpiel at every step; what was seen and said."""
    game, rng, seen = AnyOpenSpiel(name), np.random.default_rng(seed), []
    game.reset(seed=seed)
    while not game.ended:
        seat = game.agent_selection
        info, actions = game.infos[seat], game.state.legal_actions()
        assert game.seats.index(seat) == game.state.current_player()
        assert len(set(info["legal"])) == len(actions) and all(info["legal"])
        seen.append(json.dumps([seat, info["public"], info["private"], info["legal"], game.observe(seat)]))
        assert "\x1b" not in seen[-1] and "\\u001b" not in seen[-1]
        pick = int(rng.integers(len(actions)))
        history = game.state.history()
        game.step(f" {info['legal'][pick]} ")
        assert game.infos[seat]["valid"] and game.state.history()[len(history)] == actions[pick]
    assert list(game.payoffs().values()) == pytest.approx(game.state.returns())
    return [*seen, game.render()]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_plays_and_the_same_seed_is_the_same_match(name):
    assert match(name) == match(name)


@pytest.mark.slow
def test_every_registered_game_plays_by_its_bare_name_or_is_refused():
    """Each in a process of its own, as OpenSpiel may abort one; there none of its Python games is registered."""
    ask = [sys.executable, "-c", "import pyspiel; print(*pyspiel.registered_names())"]
    names = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
    one = "import sys; from tests.games.adapters import test_any_openspiel as t; t.match(sys.argv[1])"
    failed = {}
    for name in names:
        done = subprocess.run([sys.executable, "-c", one, name], capture_output=True, text=True, timeout=120)
        if done.returncode:
            failed[name] = done.stderr.strip().splitlines()[-1]
    assert len(names) > 120 and set(failed) == REFUSED, {name: failed.get(name) for name in set(failed) ^ REFUSED}
    assert all(line.startswith("ValueError: OpenSpiel's ") for line in failed.values()), failed


@pytest.mark.parametrize(
    ("game", "why"),
    [
        ("oh_hel", r"has no game called 'oh_hel', did you mean 'oh_hell'\?"),
        ("zzzzzz(players=2)", "has no game called 'zzzzzz'; pyspiel.registered_names"),
        ("", "has no game called ''"),
        ("oh_hell(players=40)", r"oh_hell cannot be set up as 'oh_hell\(players=40\)': CHECK_TRUE\(num_players_ >="),
        ("oh_hell(player=4)", "Unknown parameter 'player'. Available parameters are: .*players"),
        ("oh_hell(players=many)", "Wrong type for parameter players. Expected type: kInt"),
        ("oh_hell(players=4", "Missing closing bracket"),
        ("misere", "Missing parameter game"),
        ("nfg_game", "nfg_game cannot be set up as 'nfg_game': "),
        ("mfg_garnet", "cannot be played by turns: it is a mean field game"),
        ("tarok", "cannot be played from a seed: it hides its chance events"),
        ("crossword", "cannot be played in words: it does not list its acts"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(game, why, capfd):
    with pytest.raises(ValueError, match=f"^OpenSpiel.*{why}") as refused:
        AnyOpenSpiel(game)
    assert "\n" not in str(refused.value) and capfd.readouterr() == ("", "")


def test_names_may_hold_blanks_and_the_terminal_comes_back(capfd):
    assert str(load("oh_hell( players = 4, num_suits = 3 )")) == "oh_hell(num_suits=3,players=4)"
    sys.stderr.write("heard")
    assert capfd.readouterr().err == "heard"


def test_a_game_says_what_it_is():
    game = AnyOpenSpiel("oh_hell(players=4)", illegal="end", penalty=2)
    assert game.seats == ("player_0", "player_1", "player_2", "player_3") and not game.perfect_information
    assert game.rules() == (
        "Oh Hell!, by the rules of OpenSpiel's oh_hell(players=4). Seats: player_0, player_1, player_2, player_3. "
        "Each wants the most for itself. Play one of the legal acts, just as written."
    )
    assert "What one wins the others lose." in AnyOpenSpiel("kuhn_poker").rules()
    assert "All are paid the same." in AnyOpenSpiel("hanabi").rules()
    assert AnyOpenSpiel("chess").perfect_information and not AnyOpenSpiel("goofspiel").perfect_information
    assert [AnyOpenSpiel(name).stake for name in ("kuhn_poker", "oh_hell", "tic_tac_toe")] == [2.0, 0.0, 1.0]


def test_a_hidden_act_is_not_heard_and_an_open_one_is():
    rock = AnyOpenSpiel("matrix_rps")
    rock.reset(seed=0)
    before = rock.private("player_1")
    rock.step("Rock")
    assert rock.observe("player_1") == {"messages": ()} and rock.private("player_1")["seen"] != before["seen"]
    other = AnyOpenSpiel("matrix_rps")
    other.reset(seed=0)
    other.step("Paper")
    assert rock.infos["player_1"] == other.infos["player_1"] and rock.state.history() != other.state.history()
    chess = AnyOpenSpiel("chess")
    chess.reset(seed=0)
    assert chess.agent_selection == "player_1"  # OpenSpiel's white
    chess.step("e4")
    assert chess.observe("player_0")["messages"] == ({"sender": "player_1", "text": "e4"},)


@pytest.mark.parametrize(("act", "taken"), [("bxc6", "P"), (" Bxc6 ", "B"), ("BXC6", None), ("BXA6", "P")])
def test_where_words_differ_by_case_alone_case_matters(act, taken):
    game = AnyOpenSpiel("chess", illegal="end")
    game.reset(seed=0)
    for move in ("b4", "a6", "b5", "h6", "e3", "g6", "Be2", "f6", "Bf3", "c6"):
        game.step(move)
    assert {"bxc6", "Bxc6", "bxa6"} <= set(game.infos["player_1"]["legal"])
    game.step(act)
    assert (game.ended == "illegal") == (taken is None)
    assert taken is None or taken in str(game.state).split("/")[2]


class Stammering(AnyOpenSpiel):
    """Every act has the same word, or none."""

    def word(self, action):
        return "" if action == 8 else "CELL"


def test_acts_that_share_a_word_are_numbered():
    game = Stammering("tic_tac_toe")
    game.reset(seed=0)
    assert game.infos["player_0"]["legal"] == [*(f"CELL #{action}" for action in range(8)), "#8"]
    game.step("cell #3")
    assert game.state.history() == [3]
