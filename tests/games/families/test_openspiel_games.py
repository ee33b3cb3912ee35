"""OpenSpiel's games in our words: the same acts, turns, chance and returns; acts read tolerantly; options checked."""

import re
from typing import Any

import numpy as np
import pyspiel
import pytest

import games
from games.families.openspiel import load

LETTERS = "ABCDEFGHIJ"
WORDS = {
    "tic_tac_toe": lambda said: f"PLAY {3 * int(said[2]) + int(said[4]) + 1}",
    "connect_four": lambda said: f"DROP {int(said[1:]) + 1}",
    "breakthrough": lambda said: said.removesuffix("*"),
    "nim": lambda said: re.sub(r"pile:(\d+), take:(\d+);", lambda m: f"TAKE {m[2]} {LETTERS[int(m[1]) - 1]}", said),
    "kuhn_poker": str.upper,
    "leduc_poker": str.upper,
    "liars_dice": lambda said: "LIAR" if said == "Liar" else f"BID {said.replace('-', ' ')}",
    "tiny_hanabi": lambda said: f"PLAY {LETTERS[int(said[3:])]}",
}
"""Our word for OpenSpiel's own, by game."""

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


def follow_chance(theirs, ours):
    """The same chance events in their game as in ours."""
    while theirs.is_chance_node():
        theirs.apply_action(ours.state.history()[len(theirs.history())])


@pytest.mark.parametrize(("name", "options", "spiel"), TABLES, ids=[spiel for *_, spiel in TABLES])
def test_random_matches_are_the_same_in_openspiel(name, options, spiel):
    rules, game = pyspiel.load_game(spiel), games.make(name, **options)
    assert game.perfect_information == (rules.get_type().information.name == "PERFECT_INFORMATION")
    zero_sum, ends = rules.get_type().utility.name == "ZERO_SUM", set()
    for seed in range(60):
        rng, theirs = np.random.default_rng(seed), rules.new_initial_state()
        game.reset(seed=seed)
        follow_chance(theirs, game)
        while not theirs.is_terminal():
            seat, player = game.agent_selection, theirs.current_player()
            assert not game.ended and game.seats.index(seat) == player
            said = {WORDS[name](theirs.action_to_string(player, act)): act for act in theirs.legal_actions()}
            assert game.infos[seat]["legal"] == list(said) and len(said) == len(theirs.legal_actions())
            act = str(rng.choice(list(said)))
            game.step(act)
            theirs.apply_action(said[act])
            follow_chance(theirs, game)
            assert str(game.state) == str(theirs) and list(game.payoffs().values()) == theirs.returns()
            other = game.seats[1 - player]
            assert {"sender": seat, "text": act} in game.observe(other)["messages"]
        assert game.ended and game.report()["turns"] == sum(move.player >= 0 for move in theirs.full_history())
        assert (sum(theirs.returns()) == 0) == (zero_sum or not any(theirs.returns()))
        ends.add((game.ended, *theirs.returns()))
    assert len(ends) > 1


@pytest.mark.parametrize("name", WORDS)
def test_case_and_blanks_do_not_matter_and_anything_else_is_illegal(name):
    for loud in (str.upper, str.lower, str.title):
        game, exact = games.make(name), games.make(name)
        game.reset(seed=1)
        exact.reset(seed=1)
        while not game.ended:
            seat = game.agent_selection
            legal = game.infos[seat]["legal"]
            for wrong in ("", "0", legal[0] + " " + legal[-1], legal[0] + ".", "MOVE"):
                lost = game.clone()
                lost.step(wrong)
                assert lost.infos[seat]["valid"] is False and lost.infos[lost.agent_selection]["legal"] == legal
            game.step(f"  {loud(legal[-1]).replace(' ', '   ')}\t| so be it")
            exact.step(f"{legal[-1]} | so be it")
            assert game.render() == exact.render()
        assert game.payoffs() == exact.payoffs()


@pytest.mark.parametrize("name", WORDS)
def test_an_illegal_act_costs_its_author_the_stake_and_pays_nobody(name):
    worst = {"kuhn_poker": 2, "leduc_poker": 13, "tiny_hanabi": 0}.get(name, 1)
    game = games.make(name, illegal="end", penalty=10)
    game.reset(seed=0)
    game.step("I pass")
    assert game.ended == "illegal" and game.payoffs() == {"first": -worst, "second": 0.0}
    assert game.rewards == {"first": -worst - 10.0, "second": 0.0}


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


def test_scripted_chance_comes_first_and_the_rest_is_drawn():
    game, drawn = games.make("leduc_poker"), set()
    for seed in range(40):
        game.reset(seed=seed, options={"chance": [5]})
        assert game.private("first") == {"card": "K"}
        drawn.add(game.private("second")["card"])
    assert drawn == {"J", "Q", "K"}


def test_every_deal_is_as_likely_as_openspiel_says():
    game = games.make("kuhn_poker")
    dealt: dict[Any, Any] = {}
    game.reset(seed=0)
    for _ in range(6000):
        game.reset()
        deal = tuple(game.state.history())
        dealt[deal] = dealt.get(deal, 0) + 1
    assert len(dealt) == 6 and all(abs(count - 1000) < 150 for count in dealt.values())  # 5 standard deviations


def test_rules_are_loaded_once():
    assert games.make("kuhn_poker").spiel is games.make("kuhn_poker").spiel is load("kuhn_poker")
