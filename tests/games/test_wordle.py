"""Wordle: marks by hand and against a second definition, the words, rewards, and secrecy of the word."""

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.wordle import Wordle, feedback, is_word, load_words

WORDS = st.text("abcde", min_size=5, max_size=5)


@pytest.mark.parametrize(
    ("word", "guess", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("crane", "boost", "-----"),
        ("abide", "speed", "--Y-Y"),  # the word has one e: only the first e is marked
        ("erase", "speed", "Y-YY-"),  # two e's in the word: both are marked
        ("steal", "speed", "G-G--"),  # the green e uses up the only one
        ("crepe", "speed", "-YGY-"),
        ("hotel", "llama", "Y----"),
        ("allow", "llama", "YGY--"),
        ("robot", "floor", "--YGY"),
        ("eerie", "where", "--YYG"),
    ],
)
def test_marks_by_hand(word, guess, marks):
    assert feedback(guess, word) == marks


@settings(deadline=None)
@given(WORDS, WORDS)
def test_a_letter_of_the_word_accounts_for_one_mark(guess, word):
    marks = feedback(guess, word)
    for letter in set(guess):
        letter_marks = [mark for mark, guessed in zip(marks, guess, strict=True) if guessed == letter]
        green = sum(guessed == actual == letter for guessed, actual in zip(guess, word, strict=True))
        assert letter_marks.count("G") == green
        assert letter_marks.count("G") + letter_marks.count("Y") == min(guess.count(letter), word.count(letter))
        others = "".join(mark for mark in letter_marks if mark != "G")
        assert "-Y" not in others  # from the left


def test_number_of_feedbacks_matches_theory():
    feedbacks = {
        feedback("".join(guess), word)
        for guess in itertools.product("abcde", repeat=5)
        for word in ("abcde", "aabcd", "aabbc", "bcdea", "bcaad", "ababc", "fghij")
    }
    patterns = {"".join(marks) for marks in itertools.product("GY-", repeat=5)}
    impossible = {marks for marks in patterns if marks.count("G") == 4 and marks.count("Y") == 1}
    assert feedbacks == patterns - impossible and len(feedbacks) == Wordle.theory["feedbacks"]


def test_words_are_valid_and_sorted():
    words = load_words()
    assert len(words) == len(set(words)) == 619 and all(map(is_word, words)) and list(words) == sorted(words)


def test_payoffs_by_hand():
    words = ["abide", "erase", "steal"]
    game = Wordle(words=words)
    game.reset(seed=0, options={"word": "abide"})
    game.step("guess SPEED")
    assert game.observe("guesser")["messages"][0]["text"] == "speed: --Y-Y"
    assert game.infos["guesser"]["public"] == {"guesses": ["speed --Y-Y"], "turns_left": 5}
    game.step("GUESS abide")
    assert game.payoffs() == {"guesser": pytest.approx(0.98)}
    assert game.report() == {"ended": "solved", "turns": 2, "solved": True, "best_guess": 5, "answer": "abide"}
    steps = Wordle(words=words, reward="steps", max_turns=2)
    for guesses, pay in ((["abide"], 0.0), (["speed", "abide"], -1.0), (["speed", "erase"], -2.0)):
        steps.reset(seed=0, options={"word": "abide"})
        for guess in guesses:
            steps.step(f"GUESS {guess}")
        assert steps.payoffs() == {"guesser": pay} and steps.ended == ("solved" if pay > -2 else "turns")
    assert steps.observe("guesser")["messages"][-1]["text"].endswith("the word was abide.")


def test_hidden_word_is_invisible_until_the_end():
    game, first_views = Wordle(), set()
    for seed in range(1000):
        game.reset(seed=seed)
        first_views.add(json.dumps([game.infos, game.observe("guesser")]))
        assert game.rng
        for guess in game.rng.choice(game.words, size=5):
            if guess == game.word:
                continue
            game.step(f"GUESS {guess}")
            info = game.infos["guesser"]
            visible_text = json.dumps([game.observe("guesser"), info["public"], info["private"]])
            assert game.word not in re.findall("[a-z]+", visible_text)
            assert info["legal"] == [f"GUESS {word}" for word in game.words]
    assert len(first_views) == 1  # including the rules


def test_refuses_invalid_options():
    for words in ([], ["abide", "abide"], ["four"], ["Abide"], ["abidé"]):
        with pytest.raises(ValueError, match="five letters"):
            Wordle(words=words)
    assert Wordle(words=["abide"]).words == ("abide",)
    with pytest.raises(ValueError, match="word must be one of"):
        Wordle().reset(seed=0, options={"word": "zzzzz"})


@settings(deadline=None)
@given(st.one_of(st.text(st.characters(), max_size=20), st.from_regex(r"(?i)guess\s+\w{4,6}")))
def test_any_text_is_harmless(text):
    game = Wordle()
    game.reset(seed=0)
    game.step(text)
    readable = re.fullmatch(r"\s*guess\s+[a-z]{5}\s*", text.split("|")[0], re.ASCII | re.IGNORECASE)
    assert not readable or game.infos["guesser"]["valid"]
    assert game.infos["guesser"]["valid"] == bool(game.marked)
    json.dumps([game.infos, game.observe("guesser")])


def test_splits_hide_disjoint_words_and_list_all():
    words, hidden = load_words()[:32], {}
    for split in ("train", "test", "all"):
        game = Wordle(words=words, split=split)
        split_words = set()
        for seed in range(400):
            game.reset(seed=seed)
            split_words.add(game.word)
        assert len(game.legal("guesser")) == 32
        hidden[split] = split_words
    assert hidden["test"] == set(words[::4]) and hidden["train"] == hidden["all"] - hidden["test"]
    assert len(hidden["all"]) == 32
    for options in ({"split": "dev"}, {"split": "train", "words": ["crane"]}):
        with pytest.raises(ValueError, match="split must"):
            Wordle(**options)
