"""WordClue: turns, clues, payoffs by hand; the guessers' views; optimal values; arbitrary text."""

import functools
import itertools
import json
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from games.word_clue import WordClue, load_nouns

BOARD = ["bear", "cloud", "piano", "apple", "river", "gold", "nurse", "train", "lamp"]
TARGETS = ["apple", "bear", "river"]
DEAL = {"board": BOARD, "targets": TARGETS}


def play_acts(*acts, deal=DEAL, **options):
    game = WordClue(**options)
    game.reset(seed=0, options=deal)
    for act in acts:
        game.step(act)
    return game


def test_nouns_are_valid_and_sorted():
    assert len(load_nouns()) == len(set(load_nouns())) >= 300 and list(load_nouns()) == sorted(load_nouns())
    assert all(3 <= len(word) <= 12 and set(word) <= set(string.ascii_lowercase) for word in load_nouns())


def test_a_round_by_hand():
    game = play_acts()
    assert game.agent_selection == "giver" and game.infos["giver"]["legal"] is None
    assert game.private("giver") == {"targets": ["bear", "apple", "river"]}
    game.step(" clue  Nature 2 ")
    assert game.observe("guesser_1")["messages"] == ({"sender": "giver", "text": "CLUE nature 2"},)
    assert game.legal("guesser_1") == [*(f"GUESS {word}" for word in BOARD), "STOP"]
    turn = {"clue": "nature 2", "guesses_left": 2, "rounds_left": 2}
    assert game.public() == {"board": BOARD, "found": [], "missed": [], **turn}
    game.step("guess RIVER")
    assert game.rewards == {"giver": 1.0, "guesser_1": 1.0} and game.agent_selection == "guesser_1"
    assert game.private("giver") == {"targets": ["bear", "apple"]}
    game.step("GUESS cloud")
    assert game.rewards == {"giver": -0.5, "guesser_1": -0.5} and game.agent_selection == "giver"
    assert [m["text"] for m in game.observe("giver")["messages"]] == [
        "GUESS river", "river is a target.", "GUESS cloud", "cloud is not a target: the round is over.",
    ]  # fmt: skip
    assert game.public()["clue"] == "" and game.public()["rounds_left"] == 1
    game.step("CLUE fruit 1")
    game.step("GUESS apple")
    assert game.payoffs() == {"giver": 1.5, "guesser_1": 1.5}
    counts = {"turns": 5, "found": 2, "missed": 1, "share": 2 / 3, "rounds": 2}
    assert game.report() == {"ended": "rounds", **counts, "answer": "bear, apple, river"}


def test_the_last_target_ends_the_match():
    game = play_acts("CLUE wild 3", "GUESS bear", "GUESS river", "GUESS apple")
    assert game.report()["ended"] == "found" and game.payoffs()["giver"] == game.theory["best"] == 3


@pytest.mark.parametrize(
    "clue",
    [
        "CLUE bear 1",  # on the board
        "CLUE Gold 1",  # whatever the case
        "CLUE applepie 1",  # contains a board word
        "CLUE loud 1",  # is part of one
        "CLUE animal 0",
        "CLUE animal 4",  # more than there are targets
        "CLUE animal",
        "CLUE two words 2",
        "CLUE a 1",
        "CLUE " + "x" * 21 + " 1",
        "CLUE animal ١",  # not an ASCII digit
        "CLUE änimal 1",
        "CLUE ſnow 1",  # folds to an ASCII letter, but is none
        "CLUE 1",
        "GUESS bear",
        "STOP",
        "",
    ],
)
def test_refuses_invalid_clues(clue):
    game = play_acts(clue)
    assert game.infos["giver"]["valid"] is False and game.agent_selection == "giver" and not game.public()["clue"]
    game.step("CLUE animal 1")
    assert game.infos["giver"]["valid"] and game.agent_selection == "guesser_1"


def test_found_words_stay_forbidden_and_numbers_are_limited_to_remaining_targets():
    game = play_acts("CLUE animal 1", "GUESS bear")
    for act, message in (("CLUE bear 1", "such as bear"), ("CLUE wet 3", "from 1 to 2")):
        copy = game.clone()
        copy.step(act)
        assert message in copy.observe("giver")["messages"][-1]["text"]


@pytest.mark.parametrize("guess", ["GUESS bears", "GUESS", "GUESS bear", "CLUE wet 1", "bear", "", "GUESS bear apple"])
def test_refuses_invalid_guesses(guess):
    game = play_acts("CLUE wild 3", "GUESS bear", guess)
    assert game.infos["guesser_1"]["valid"] is False and game.payoffs()["guesser_1"] == 1
    game.step("GUESS apple")
    assert game.payoffs()["guesser_1"] == 2


def test_stop_and_the_turns_of_several_guessers():
    game = play_acts("CLUE wild 3", players=4)
    order = []
    for act in ("GUESS bear", "STOP", "GUESS apple", "STOP", "STOP"):
        order.append(game.agent_selection[-1])
        game.step(act)
    assert order == ["1", "2", "3", "1", "3"] and game.agent_selection == "giver" and game.public()["rounds_left"] == 1
    game.step("CLUE water 1")
    assert game.agent_selection == "guesser_2"  # another guesser starts
    game.step("GUESS river")
    assert game.payoffs() == dict.fromkeys(["giver", "guesser_1", "guesser_2", "guesser_3"], 3.0)


def test_rounds_without_a_guess_pay_nothing():
    game = play_acts("CLUE wild 1", "STOP", "CLUE wild 1", "stop")
    assert game.ended == "rounds" and game.payoffs() == {"giver": 0.0, "guesser_1": 0.0}


def encode_targets(board, targets):
    """Return a clue that encodes the targets' positions on the board; no noun contains it."""
    return "".join("zq"[word in targets] for word in board) + "zqzq"


@pytest.mark.parametrize("options", [{}, {"players": 5}, {"words": 16, "targets": 5, "rounds": 1, "cost": 2}])
def test_encoding_clues_reach_the_maximum(options):
    game = WordClue(**options)
    for seed in range(50):
        game.reset(seed=seed)
        targets = game.infos["giver"]["private"]["targets"]
        board = game.infos["giver"]["public"]["board"]
        game.step(f"CLUE {encode_targets(board, targets)} {len(targets)}")
        while not game.ended:
            info = game.infos[game.agent_selection]
            code_by_word = dict(zip(board, info["public"]["clue"], strict=False))  # decode the clue
            game.step(
                f"GUESS {next(w for w, bit in code_by_word.items() if bit == 'q' and w in info['public']['board'])}"
            )
        assert set(game.payoffs().values()) == {float(options.get("targets", 3))} and game.ended == "found"


def test_best_value_without_information():
    """Compare the theory with dynamic programming and with the best blind plan over all deals."""

    @functools.cache
    def compute_value(words, targets, rounds):
        if not (rounds and targets):
            return 0.0
        hit = 1 + compute_value(words - 1, targets - 1, rounds)
        miss = -0.5 + compute_value(words - 1, targets, rounds - 1)
        return max(0.0, compute_value(words, targets, rounds - 1), (hit * targets + miss * (words - targets)) / words)

    theory = games.make("word_clue").theory["no_information"]
    assert compute_value(9, 3, 2) == pytest.approx(theory)
    payoffs = []
    for targets in itertools.combinations(BOARD, 3):
        game = play_acts("CLUE zz 3", "GUESS bear", deal={"board": BOARD, "targets": targets})
        if game.agent_selection == "giver":
            game.step("CLUE zz 3")
            game.step("GUESS cloud")
        payoffs.append(game.payoffs()["giver"])
    assert np.mean(payoffs) == pytest.approx(theory)


def test_guessers_views_do_not_depend_on_unrevealed_targets():
    rng = np.random.default_rng(5)
    for seed in range(300):
        game, twin = (WordClue(players=3) for _ in range(2))
        game.reset(seed=seed)
        targets = rng.choice(game.board, 3, replace=False).tolist()
        twin.reset(seed=seed, options={"board": game.board, "targets": targets})
        assert game.board == twin.board
        while not (game.ended or twin.ended):
            for seat in ("guesser_1", "guesser_2"):
                views = [[g.public(), g.private(seat), g.observe(seat), g.infos[seat]] for g in (game, twin)]
                if game.agent_selection != "giver":  # only the mover's info has a view
                    assert json.dumps(views[0]) == json.dumps(views[1])
                assert views[0][:3] == views[1][:3] and views[0][1] == {}
            act = (
                "CLUE zqz 2"
                if game.agent_selection == "giver"
                else str(rng.choice(game.legal(game.agent_selection) or []))
            )
            if act.startswith("GUESS") and (act[6:] in game.targets) != (act[6:] in twin.targets):
                break
            game.step(act)
            twin.step(act)


def test_boards_and_targets_are_drawn_evenly_from_the_seed():
    game, words, places = WordClue(words=5, targets=2), set(), np.zeros(5)
    for seed in range(1000):
        game.reset(seed=seed)
        assert len(set(game.board)) == 5 and len(game.targets) == 2
        words |= set(game.board)
        places += [word in game.targets for word in game.board]
    assert words == set(load_nouns()) and np.all(abs(places - 400) < 80)


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(
    ["CLUE wild 2", "CLUE {} 1", "GUESS bear", "GUESS cloud", "STOP", "GUESS apple | you know", "CLUE bear 1"]
)), max_size=20), st.integers(2, 5), st.sampled_from(["retry", "end"]))  # fmt: skip
def test_any_text_is_harmless(acts, players, illegal):
    game = play_acts(players=players, illegal=illegal, penalty=0)
    for act in acts:
        if not game.ended:
            game.step(act)
        json.dumps([game.public(), game.infos])
        assert all(m["text"].isprintable() for seat in game.seats for m in game.observe(seat)["messages"])
        payoff = len(game.found) - 0.5 * len(game.missed)
        losers = [seat for seat, value in game.payoffs().items() if value != payoff]
        assert losers == ([game.agent_selection] if game.ended == "illegal" else [])
        assert set(game.found) <= set(TARGETS) and not set(game.missed) & set(TARGETS)


def test_talk_is_off_unless_given():
    for talk in ({}, {"talk": True}):
        game = play_acts("CLUE animal 1 | and then apple", **talk)
        assert ("apple" in game.observe("guesser_1")["messages"][0]["text"]) == bool(talk)


def test_refuses_invalid_options():
    for options in ({"players": 6}, {"words": 1}, {"words": 26}, {"targets": 9}, {"rounds": 0}, {"cost": -1}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} must be"):
            games.make("word_clue", **options)
    for deal in ({"board": ["one", "two"]}, {"board": [*BOARD[:8], "Lamp"]}, {"board": BOARD, "targets": ["bear"] * 3}):
        with pytest.raises(ValueError, match=r"(board|targets) must be"):
            play_acts(deal=deal)
    with pytest.raises(ValueError, match="targets must be"):
        play_acts(deal={"board": BOARD, "targets": ["bear", "apple", "moon"]})
