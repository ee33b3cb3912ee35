"""Scripted players of single-seat games: each solves its game as documented, from its view alone."""

import copy
import itertools
import statistics

import pytest

import games
from agents.players.guessers import GAMES, SCRIPTED, mark_guess
from games.contracts import View
from games.families.questions import Questions
from games.wordle import Wordle, feedback, load_words
from tests.factories.thorough import count_cases


def make_view(game):
    """Return the view of the only seat."""
    return copy.deepcopy(View.of(game, game.agent_selection, game.turns))


def play_match(game, script):
    """Play a reset match to its end and return its report."""
    while not game.ended:
        game.step(script.act(make_view(game)))
        assert game.infos[game.agent_selection]["valid"]
    return game.report()


def play_matches(name, script, seeds, **options):
    game = games.make(name, **options)
    for seed in range(seeds):
        game.reset(seed=seed)
        yield play_match(game, SCRIPTED[script](seed))


def test_scripted_players_match_the_documented_table():
    assert SCRIPTED.keys() == GAMES.keys()
    for script, names in GAMES.items():
        for name in names:
            assert len(list(play_matches(name, script, 3))) == 3


@pytest.mark.parametrize("name", ["twenty_questions", "guess_city"])
def test_the_halver_finds_every_thing_close_to_the_bound(name):
    game = games.make(name, open_book=True)
    assert isinstance(game, Questions)
    turns = []
    for thing in game.book.things:
        game.reset(seed=0, options={"thing": thing.names[-1]})
        report = play_match(game, SCRIPTED["halver"](0))
        assert report["solved"]
        turns.append(report["turns"])
    least = game.theory["least_worst_case_turns"]
    assert least <= max(turns) <= least + 2
    blind = [report["solved"] for report in play_matches(name, "halver", 100)]
    assert statistics.fmean(blind) < 0.5  # without the book it only tries


def test_marks_equal_those_of_the_game():
    words = Wordle().words[::9]
    for guess, word in itertools.product(words, words):
        assert mark_guess(guess, word) == feedback(guess, word)


@pytest.mark.thorough
def test_consistent_guesser_never_tries_excluded_answers():
    game = games.make("wordle", max_turns=12)
    turns = []
    for seed in range(count_cases(20, 60)):
        game.reset(seed=seed)
        turns.append(play_match(game, SCRIPTED["consistent_guesser"](seed))["turns"])
        guesses = [line.split() for line in game.public()["guesses"]]
        assert all(
            feedback(before, later) == told
            for (before, told), (later, _) in itertools.combinations(guesses, 2)
        )  # fmt: skip
        assert game.ended == "solved"
    assert statistics.fmean(turns) < 4.5


@pytest.mark.parametrize(
    ("name", "sound", "options"),
    [
        ("wordle", "consistent_guesser", {"words": load_words()[::20], "max_turns": 3}),
        ("twenty_questions", "halver", {"open_book": True, "max_turns": 9}),
    ],
)
def test_careless_player_loses_a_third_of_its_turns(name, sound, options):
    """It solves fewer games than the sound player and more than a random one."""
    careless = {"consistent_guesser": "careless_guesser", "halver": "careless_halver"}[sound]
    solved = {
        each: statistics.fmean(r["solved"] for r in play_matches(name, each, 60, **options))
        for each in (sound, careless)
    }
    assert 0.4 < solved[careless] < 0.9 < solved[sound]
    game, same = games.make(name, **options), []
    for seed in range(200):
        game.reset(seed=seed)
        same.append(SCRIPTED[careless](seed).act(make_view(game)) == SCRIPTED[sound](seed).act(make_view(game)))
    assert statistics.fmean(same) == pytest.approx(2 / 3, abs=0.1)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("size", [2, 5, 9])
def test_map_reader_takes_the_shortest_path(size):
    for report in play_matches("maze", "map_reader", 100, size=size):
        assert report["efficiency"] == games.make("maze").theory["max_efficiency"]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("size", "view"), [(2, "full"), (5, "partial"), (9, "partial")])
def test_a_hand_on_the_wall_leads_to_the_goal_in_time(size, view):
    seen = list(play_matches("maze", "wall_follower", 1000 if size == 5 else 100, size=size, view=view))
    assert all(report["solved"] and report["turns"] <= 2 * (size**2 - 1) for report in seen)
    assert all(0 < report["efficiency"] <= 1 for report in seen)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("rooms", [2, 6, 12])
def test_depth_first_search_brings_every_item_home_in_time(rooms):
    seen = list(play_matches("text_navigation", "fetcher", 1000 if rooms == 6 else 200, rooms=rooms))
    assert all(report["solved"] and report["shortest"] <= report["turns"] <= 3 * rooms for report in seen)
    assert any(report["efficiency"] == 1.0 for report in seen)
