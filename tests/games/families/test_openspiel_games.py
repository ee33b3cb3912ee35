"""OpenSpiel's games as text: equal acts, turns, chance and returns; tolerant parsing of acts; option checks."""

import re
from typing import Any

import numpy as np
import pyspiel
import pytest

import games
from games.families.openspiel import OpenSpielGame, load
from games.kuhn_poker import KuhnPoker

LETTERS = "ABCDEFGHIJ"
WORDS = {
    "tic_tac_toe": lambda action: f"PLAY {3 * int(action[2]) + int(action[4]) + 1}",
    "connect_four": lambda action: f"DROP {int(action[1:]) + 1}",
    "breakthrough": lambda action: action.removesuffix("*"),
    "nim": lambda action: re.sub(r"pile:(\d+), take:(\d+);", lambda m: f"TAKE {m[2]} {LETTERS[int(m[1]) - 1]}", action),
    "kuhn_poker": str.upper,
    "leduc_poker": str.upper,
    "liars_dice": lambda action: "LIAR" if action == "Liar" else f"BID {action.replace('-', ' ')}",
    "tiny_hanabi": lambda action: f"PLAY {LETTERS[int(action[3:])]}",
}
"""Map from OpenSpiel's action string to our act, by game."""

TABLES = [
    ("tic_tac_toe", {}, "tic_tac_toe"),
    ("connect_four", {}, "connect_four"),
    ("connect_four", {"rows": 4, "columns": 12, "connect": 3}, "connect_four(rows=4,columns=12,x_in_row=3)"),
    ("breakthrough", {}, "breakthrough(rows=6,columns=6)"),
    ("breakthrough", {"rows": 9, "columns": 3}, "breakthrough(rows=9,columns=3)"),
    ("nim", {}, "nim(is_misere=false)"),
    ("nim", {"piles": [2, 4, 20], "misere": True}, "nim(pile_sizes=2;4;20,is_misere=true)"),
    ("kuhn_poker", {}, "kuhn_poker"),
    ("leduc_poker", {}, "leduc_poker"),
    ("liars_dice", {}, "liars_dice"),
    ("liars_dice", {"dice": 3, "sides": 4}, "liars_dice(numdice=3,dice_sides=4)"),
    ("tiny_hanabi", {}, "tiny_hanabi"),
]


def copy_chance_events(state, game):
    """Apply our game's chance events to OpenSpiel's state."""
    while state.is_chance_node():
        state.apply_action(game.state.history()[len(state.history())])


@pytest.mark.parametrize(("name", "options", "spiel"), TABLES, ids=[spiel for *_, spiel in TABLES])
def test_random_matches_are_equal_in_openspiel(name, options, spiel):
    rules, game = pyspiel.load_game(spiel), games.make(name, **options)
    assert isinstance(game, OpenSpielGame)
    assert game.perfect_information == (rules.get_type().information.name == "PERFECT_INFORMATION")
    zero_sum, outcomes = rules.get_type().utility.name == "ZERO_SUM", set()
    for seed in range(60):
        rng, spiel_state = np.random.default_rng(seed), rules.new_initial_state()
        game.reset(seed=seed)
        copy_chance_events(spiel_state, game)
        while not spiel_state.is_terminal():
            seat, player = game.agent_selection, spiel_state.current_player()
            assert not game.ended and game.seats.index(seat) == player
            actions = {
                WORDS[name](spiel_state.action_to_string(player, act)): act for act in spiel_state.legal_actions()
            }
            assert game.infos[seat]["legal"] == list(actions) and len(actions) == len(spiel_state.legal_actions())
            act = str(rng.choice(list(actions)))
            game.step(act)
            spiel_state.apply_action(actions[act])
            copy_chance_events(spiel_state, game)
            assert str(game.state) == str(spiel_state) and list(game.payoffs().values()) == spiel_state.returns()
            other = game.seats[1 - player]
            assert {"sender": seat, "text": act} in game.observe(other)["messages"]
        assert game.ended and game.report()["turns"] == sum(move.player >= 0 for move in spiel_state.full_history())
        assert (sum(spiel_state.returns()) == 0) == (zero_sum or not any(spiel_state.returns()))
        outcomes.add((game.ended, *spiel_state.returns()))
    assert len(outcomes) > 1


@pytest.mark.parametrize("name", WORDS)
def test_case_and_blanks_do_not_matter_and_anything_else_is_illegal(name):
    for change_case in (str.upper, str.lower, str.title):
        game, reference = games.make(name), games.make(name)
        game.reset(seed=1)
        reference.reset(seed=1)
        while not game.ended:
            seat = game.agent_selection
            legal = game.infos[seat]["legal"]
            for act in ("", "0", legal[0] + " " + legal[-1], legal[0] + ".", "MOVE"):
                copy = game.clone()
                copy.step(act)
                assert copy.infos[seat]["valid"] is False and copy.infos[copy.agent_selection]["legal"] == legal
            game.step(f"  {change_case(legal[-1]).replace(' ', '   ')}\t| so be it")
            reference.step(f"{legal[-1]} | so be it")
            assert game.render() == reference.render()
        assert game.payoffs() == reference.payoffs()


@pytest.mark.parametrize("name", WORDS)
def test_an_illegal_act_costs_its_author_the_stake_and_pays_nobody(name):
    stake = {"kuhn_poker": 2, "leduc_poker": 13, "tiny_hanabi": 0}.get(name, 1)
    game = games.make(name, illegal="end", penalty=10)
    game.reset(seed=0)
    game.step("I pass")
    assert game.ended == "illegal" and game.payoffs() == {"first": -stake, "second": 0.0}
    assert game.rewards == {"first": -stake - 10.0, "second": 0.0}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("connect_four", {"rows": 0}), ("connect_four", {"columns": 21}), ("connect_four", {"connect": 8}),
        ("connect_four", {"draw": -0.1}), ("tic_tac_toe", {"draw": "much"}), ("breakthrough", {"rows": 3}),
        ("breakthrough", {"columns": 10}), ("nim", {"piles": []}), ("nim", {"piles": [0]}), ("nim", {"piles": "1357"}),
        ("nim", {"piles": [1.0]}), ("nim", {"misere": 1}), ("liars_dice", {"dice": 0}), ("liars_dice", {"sides": 1}),
    ],
)  # fmt: skip
def test_bad_options_are_named(name, options):
    (option,) = options
    with pytest.raises(ValueError, match=f"^{option} must be "):
        games.make(name, **options)


def test_scripted_chance_comes_first_and_the_rest_is_random():
    game, cards = games.make("leduc_poker"), set()
    for seed in range(40):
        game.reset(seed=seed, options={"chance": [5]})
        assert game.private("first") == {"card": "K"}
        cards.add(game.private("second")["card"])
    assert cards == {"J", "Q", "K"}


def test_deals_are_uniform():
    game = KuhnPoker()
    counts: dict[Any, Any] = {}
    game.reset(seed=0)
    for _ in range(6000):
        game.reset()
        deal = tuple(game.state.history())
        counts[deal] = counts.get(deal, 0) + 1
    assert len(counts) == 6 and all(abs(count - 1000) < 150 for count in counts.values())  # 5 standard deviations


def test_rules_are_loaded_once():
    assert KuhnPoker().spiel is KuhnPoker().spiel is load("kuhn_poker")
