"""Catalogues: generated ones depend on size and seed; invalid files get one line naming file and row."""

import csv

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulators.conformance import play
from simulators.recommender import Recommender
from simulators.recommender import catalogue as catalogues
from simulators.recommender.catalogue import CAPS, MIN_ITEMS, generate, load
from simulators.recommender.speech import read_wish
from simulators.recommender.wishes import Wish
from simulators.recommender.words import GENRES, compile_finder, hint_at

HEADER = ["name", "genre", "price", "quality", "text"]


def make_rows(count=MIN_ITEMS):
    return [
        [f"Thing {n}", ("red", "blue|green", "green")[n % 3], str(n), "0.5", f"A thing, number {n}."]
        for n in range(count)
    ]


def write_csv(tmp_path, lines, header=HEADER):
    file = tmp_path / "mine.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header, *lines])
    return str(file)


def test_a_generated_catalogue_is_a_function_of_its_size_and_seed():
    catalogue = generate(300, 1)
    assert catalogue.items == generate(300, 1).items != generate(300, 2).items
    assert len({item.name for item in catalogue.items}) == 300
    assert {genre for item in catalogue.items for genre in item.genres} == set(range(len(GENRES)))
    assert all(0 <= item.quality <= 1 and 3 <= item.price <= 40 for item in catalogue.items)


def test_texts_contain_only_genre_price_and_hint():
    catalogue = generate(500, 3)
    for item in catalogue.items:
        assert catalogue.find_genres(item.text.removeprefix(item.name)) == set(item.genres)
        assert f" {item.price:g} crowns. " in item.text and item.text.endswith(hint_at(item.quality))
        assert not catalogue.find_genres(item.name)


def test_no_phrase_has_two_genres():
    phrases = [phrase for spelled in GENRES.values() for phrase in spelled]
    assert len(phrases) == len(set(phrases)) == len(compile_finder(GENRES)[1])


def test_plays_a_catalogue_from_a_file(tmp_path):
    path = write_csv(tmp_path, make_rows(40))
    catalogue = load(path)
    assert catalogue.genres == ("blue", "green", "red")
    assert catalogue.items[1].genres == (0, 1)
    assert catalogue.items[1].text == "Thing 1: blue with a touch of green. 1 crowns. A thing, number 1."
    game = Recommender(catalogue=path, days=1, steepness=8.0)
    assert play(game, 0, "oracle")["score"] == 1
    assert game.private("recommender")["candidates"] == []
    game.reset(seed=0)
    line = game.private("recommender")["candidates"][0]
    assert all(part in line for part in ("Thing ", " crowns. ", "A thing, number"))


@pytest.mark.parametrize(
    ("row", "cells", "message"),
    [
        (3, ["Thing 3", "red", "cheap", "0.5", ""], ":5: price must be a number from 0 to 1e+06, not 'cheap'"),
        (0, ["Thing 0", "red", "1", "1.5", ""], ":2: quality must be a number from 0 to 1, not '1.5'"),
        (1, ["Thing 1", "red", "nan", "0.5", ""], ":3: price must be a number"),
        (2, ["", "red", "1", "0.5", ""], ":4: the name is empty"),
        (2, ["Thing 1", "red", "1", "0.5", ""], ":4: `Thing 1` is in line 3 already"),
        (4, ["Thing 4", " | ", "1", "0.5", ""], ":6: the genre is empty"),
        (4, ["Thing 4", "red|ужасы", "1", "0.5", ""], ":6: the genre `ужасы` has no letter from a to z"),
        (4, ["Thing 4", "red", "1"], ":6: expected 5 cells"),
        (4, ["Thing 4", "red", "1", "0.5", "a", "b"], ":6: expected 5 cells"),
    ],
)
def test_refuses_invalid_rows_by_line(tmp_path, row, cells, message):
    lines = make_rows()
    lines[row] = cells
    with pytest.raises(ValueError) as refused:
        load(write_csv(tmp_path, lines))
    assert f"mine.csv{message}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "header", "message"),
    [
        (make_rows(3), HEADER, "3 items: a catalogue needs from 20"),
        (make_rows(), ["name", "genre", "cost", "quality", "text"], ":1: no column `price`"),
        ([[f"Thing {n}", "red", "1", "0.5", ""] for n in range(30)], HEADER, "1 genres: a catalogue needs from 2"),
        ([], [], ":1: no column `name`"),
    ],
)
def test_refuses_invalid_files(tmp_path, lines, header, message):
    with pytest.raises(ValueError) as refused:
        load(write_csv(tmp_path, lines, header))
    assert "mine.csv" in str(refused.value) and message in str(refused.value) and "\n" not in str(refused.value)


def test_refuses_files_that_are_not_utf_8(tmp_path):
    rows = "".join(f"Thing {n},ré{n % 2},1,1\n" for n in range(5000)).encode()
    (tmp_path / "bytes.csv").write_bytes(b"name,genre,price,quality\n" + rows + b"Caf\xe9,a,1,1\n")
    with pytest.raises(ValueError, match=r"bytes\.csv: the catalogue is not UTF-8: save the file as UTF-8"):
        load(str(tmp_path / "bytes.csv"))


def test_refuses_invalid_csv_by_line(tmp_path):
    (tmp_path / "open.csv").write_text('name,genre,price,quality\na,b,1,1\n"c"d,b,1,1\n')
    with pytest.raises(ValueError, match=r"open\.csv:3: invalid CSV"):
        load(str(tmp_path / "open.csv"))


def test_stops_reading_a_too_long_file(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogues, "MAX_ITEMS", 30)
    path = write_csv(tmp_path, [*make_rows(31), ["Thing 31", "red", "cheap", "0.5", ""]])
    with pytest.raises(ValueError, match="too many items: a catalogue needs from 20 to 30"):
        load(path)


@pytest.mark.parametrize("prices", [(100, 900), (0.05, 0.9), (20_000, 90_000), (0, 0)], ids=str)
def test_caps_are_within_the_prices_of_the_file(tmp_path, prices):
    low, high = prices
    lines = [[f"Thing {n}", "abc"[n % 3], low + (high - low) * n / 59, n % 10 / 9, ""] for n in range(60)]
    game = Recommender(catalogue=write_csv(tmp_path, lines), days=1)
    for seed in range(5):
        assert play(game, seed, "oracle")["score"] == 1
        assert max(1, low) <= game.service.deal.records[0].cap <= max(1, high)


def test_prices_of_the_file_are_understood(tmp_path):
    lines = [[f"Thing {n}", "abc"[n % 3], 20_000 + 1000 * n, n % 10 / 9, ""] for n in range(60)]
    books = load(write_csv(tmp_path, lines))
    assert read_wish("UNDER 45000", books, 1) == Wish("under", 45_000)
    assert read_wish("UNDER 45000", generate(20, 0), 1) is None


def test_generated_catalogues_have_default_caps():
    assert generate(20, 0).caps == CAPS == (15, 35)


NAMES = [
    ("comedy", "satire", "horror"), ("love story", "romance", "courtship", "haunting"), ("comic books", "love", "war"),
    ("talk show", "showbiz", "more or less", "under water"),
    ("locked room puzzle", "mystery", "science", "science fiction"),
]  # fmt: skip


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_genres_may_have_names_of_other_words(tmp_path, names):
    lines = [[f"Thing {n}", names[n % len(names)], n % 40, n % 10 / 9, ""] for n in range(80)]
    path = write_csv(tmp_path, lines)
    game = Recommender(catalogue=path, days=1)
    assert [play(game, seed, "oracle")["score"] for seed in range(20)] == [1] * 20
    genres = game.shelf.catalogue.genres
    for number, genre in enumerate(genres):
        assert game.shelf.catalogue.find_genres(genre) == {number}
        assert read_wish(f"More {genre}.", game.shelf.catalogue, 1) == Wish("more", number)
    free_game = Recommender(catalogue=path, days=1, person="free")
    for seed in range(3):
        untrue = play(free_game, seed, "listening", "random")["untrue"]
        assert float(untrue) <= float(free_game.report()["steered"])


@pytest.mark.parametrize("name", ["1984", "most", "like", "please", "no"])
def test_refuses_genres_that_would_be_misread(tmp_path, name):
    lines = [[f"Thing {n}", ("red", "blue", name)[n % 3], n, "0.5", ""] for n in range(40)]
    with pytest.raises(ValueError, match=r"mine\.csv: the users' text `.*` is parsed wrongly: rename") as refused:
        Recommender(catalogue=write_csv(tmp_path, lines))
    assert "\n" not in str(refused.value)


@given(st.lists(st.lists(st.text(max_size=8), max_size=6), max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_loads_or_gives_one_line(tmp_path, lines):
    path = write_csv(tmp_path, [*make_rows(), *lines])
    try:
        catalogue = load(path)
    except ValueError as refused:
        assert "mine.csv" in str(refused) and "\n" not in str(refused)
    else:
        assert len(catalogue.items) >= MIN_ITEMS
