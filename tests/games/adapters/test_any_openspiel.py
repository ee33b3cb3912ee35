"""Every game of OpenSpiel as a text game: playable and refused names, error messages, hidden acts."""

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
"""Registered names that cannot be played without parameters."""

SAMPLE = [
    "2048", "backgammon", "battleship", "bridge", "capture_the_flag", "catch", "chess", "coin_game", "connect_four",
    "coop_box_pushing", "crazy_eights", "cribbage", "dark_hex", "dots_and_boxes", "euchre", "first_sealed_auction",
    "gin_rummy", "go(board_size=5)", "go_fish", "goofspiel(num_cards=4)", "hearts", "hex(board_size=4)", "hive",
    "kuhn_poker(players=3)", "matching_pennies_3p", "matrix_pd", "misere(game=tic_tac_toe())", "nine_mens_morris",
    "oh_hell(players=4)", "othello", "oware", "phantom_ttt", "pig(players=3)", "quoridor", "rbc", "sheriff", "skat",
    "social_deduction", "spades", "tiny_bridge_4p", "twixt", "ultimate_tic_tac_toe", "universal_poker", "yacht",
    "repeated_game(stage_game=matrix_rps(),num_repetitions=3)", "start_at(history=4;0,game=tic_tac_toe())",
]  # fmt: skip


def play_random_match(name, seed=1):
    """Play random acts, compare with OpenSpiel at every step, and return what was observed and rendered."""
    game, rng, observations = AnyOpenSpiel(name), np.random.default_rng(seed), []
    game.reset(seed=seed)
    while not game.ended:
        seat = game.agent_selection
        info, actions = game.infos[seat], game.state.legal_actions()
        assert game.seats.index(seat) == game.state.current_player()
        assert len(set(info["legal"])) == len(actions) and all(info["legal"])
        observations.append(json.dumps([seat, info["public"], info["private"], info["legal"], game.observe(seat)]))
        assert "\x1b" not in observations[-1] and "\\u001b" not in observations[-1]
        pick = int(rng.integers(len(actions)))
        history = game.state.history()
        game.step(f" {info['legal'][pick]} ")
        assert game.infos[seat]["valid"] and game.state.history()[len(history)] == actions[pick]
    assert list(game.payoffs().values()) == pytest.approx(game.state.returns())
    return [*observations, game.render()]


@pytest.mark.parametrize("name", SAMPLE)
def test_sample_plays_reproducibly(name):
    assert play_random_match(name) == play_random_match(name)


@pytest.mark.slow
def test_every_registered_game_plays_by_its_bare_name_or_is_refused():
    """Each name runs in its own process, as OpenSpiel may abort it; Python games are not registered there."""
    command = [sys.executable, "-c", "import pyspiel; print(*pyspiel.registered_names())"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    code = "import sys; from tests.games.adapters import test_any_openspiel as t; t.play_random_match(sys.argv[1])"
    failed = {}
    for name in names:
        process = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, timeout=120)
        if process.returncode:
            failed[name] = process.stderr.strip().splitlines()[-1]
    assert len(names) > 120 and set(failed) == REFUSED, {name: failed.get(name) for name in set(failed) ^ REFUSED}
    assert all(line.startswith("ValueError: OpenSpiel's ") for line in failed.values()), failed


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("oh_hel", r"has no game called 'oh_hel' — did you mean 'oh_hell'\?"),
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
def test_unplayable_games_are_refused_in_one_line(game, message, capfd):
    with pytest.raises(ValueError, match=f"^OpenSpiel.*{message}") as refused:
        AnyOpenSpiel(game)
    assert "\n" not in str(refused.value) and capfd.readouterr() == ("", "")


def test_names_may_contain_spaces_and_stderr_is_restored(capfd):
    assert str(load("oh_hell( players = 4, num_suits = 3 )")) == "oh_hell(num_suits=3,players=4)"
    sys.stderr.write("heard")
    assert capfd.readouterr().err == "heard"


def test_seats_rules_and_stakes_describe_the_game():
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


def test_hidden_act_is_not_observed_and_open_act_is():
    rock_game = AnyOpenSpiel("matrix_rps")
    rock_game.reset(seed=0)
    before = rock_game.private("player_1")
    rock_game.step("Rock")
    assert rock_game.observe("player_1") == {"messages": ()} and rock_game.private("player_1")["seen"] != before["seen"]
    paper_game = AnyOpenSpiel("matrix_rps")
    paper_game.reset(seed=0)
    paper_game.step("Paper")
    assert (
        rock_game.infos["player_1"] == paper_game.infos["player_1"]
        and rock_game.state.history() != paper_game.state.history()
    )
    chess = AnyOpenSpiel("chess")
    chess.reset(seed=0)
    assert chess.agent_selection == "player_1"  # OpenSpiel's white
    chess.step("e4")
    assert chess.observe("player_0")["messages"] == ({"sender": "player_1", "text": "e4"},)


@pytest.mark.parametrize(("act", "captured"), [("bxc6", "P"), (" Bxc6 ", "B"), ("BXC6", None), ("BXA6", "P")])
def test_case_matters_only_where_acts_differ_by_case(act, captured):
    game = AnyOpenSpiel("chess", illegal="end")
    game.reset(seed=0)
    for move in ("b4", "a6", "b5", "h6", "e3", "g6", "Be2", "f6", "Bf3", "c6"):
        game.step(move)
    assert {"bxc6", "Bxc6", "bxa6"} <= set(game.infos["player_1"]["legal"])
    game.step(act)
    assert (game.ended == "illegal") == (captured is None)
    assert captured is None or captured in str(game.state).split("/")[2]


class SharedWords(AnyOpenSpiel):
    """Game in which all acts share one word; one act has no word."""

    def word(self, action):
        return "" if action == 8 else "CELL"


def test_acts_that_share_a_word_are_numbered():
    game = SharedWords("tic_tac_toe")
    game.reset(seed=0)
    assert game.infos["player_0"]["legal"] == [*(f"CELL #{action}" for action in range(8)), "#8"]
    game.step("cell #3")
    assert game.state.history() == [3]
