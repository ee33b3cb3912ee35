"""Catalogues: generated ones are what their size and seed say; broken files get one line that names file and row."""

import csv

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulators.conformance import play
from simulators.recommender import Recommender
from simulators.recommender.catalogue import LEAST, generate, load
from simulators.recommender.words import GENRES, finder, hint

HEADER = ["name", "genre", "price", "quality", "text"]


def rows(count=LEAST):
    return [
        [f"Thing {n}", ("red", "blue|green", "green")[n % 3], str(n), "0.5", f"A thing, number {n}."]
        for n in range(count)
    ]


def written(tmp_path, lines, header=HEADER):
    file = tmp_path / "mine.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header, *lines])
    return str(file)


def test_a_generated_catalogue_is_a_function_of_its_size_and_seed():
    one = generate(300, 1)
    assert one.items == generate(300, 1).items != generate(300, 2).items
    assert len({item.name for item in one.items}) == 300
    assert {genre for item in one.items for genre in item.genres} == set(range(len(GENRES)))
    assert all(0 <= item.quality <= 1 and 3 <= item.price <= 40 for item in one.items)


def test_texts_say_genre_price_and_a_hint_and_nothing_else():
    catalogue = generate(500, 3)
    for item in catalogue.items:
        assert catalogue.named(item.text.removeprefix(item.name)) == set(item.genres)
        assert f" {item.price:g} crowns. " in item.text and item.text.endswith(hint(item.quality))
        assert not catalogue.named(item.name)


def test_no_phrase_is_two_genres():
    phrases = [phrase for spelled in GENRES.values() for phrase in spelled]
    assert len(phrases) == len(set(phrases)) == len(finder(GENRES)[1])


def test_a_catalogue_of_ones_own_is_played(tmp_path):
    path = written(tmp_path, rows(40))
    catalogue = load(path)
    assert catalogue.genres == ("blue", "green", "red")
    assert catalogue.items[1].genres == (0, 1) and catalogue.items[1].text == "A thing, number 1."
    game = Recommender(catalogue=path, days=1, steepness=8.0)
    assert play(game, 0, "oracle")["score"] == 1
    assert "A thing, number" in repr(game.shelf.catalogue.items[0].text)


@pytest.mark.parametrize(
    ("row", "cells", "words"),
    [
        (3, ["Thing 3", "red", "cheap", "0.5", ""], ":5: price must be a number from 0 to 1e+06, not 'cheap'"),
        (0, ["Thing 0", "red", "1", "1.5", ""], ":2: quality must be a number from 0 to 1, not '1.5'"),
        (1, ["Thing 1", "red", "nan", "0.5", ""], ":3: price must be a number"),
        (2, ["", "red", "1", "0.5", ""], ":4: the name is empty"),
        (2, ["Thing 1", "red", "1", "0.5", ""], ":4: `Thing 1` is in line 3 already"),
        (4, ["Thing 4", " | ", "1", "0.5", ""], ":6: the genre is empty"),
        (4, ["Thing 4", "red", "1"], ":6: 5 cells are due"),
        (4, ["Thing 4", "red", "1", "0.5", "a", "b"], ":6: 5 cells are due"),
    ],
)
def test_a_broken_row_is_named(tmp_path, row, cells, words):
    lines = rows()
    lines[row] = cells
    with pytest.raises(ValueError) as refused:
        load(written(tmp_path, lines))
    assert f"mine.csv{words}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "header", "words"),
    [
        (rows(3), HEADER, "3 items: a catalogue needs from 20"),
        (rows(), ["name", "genre", "cost", "quality", "text"], ":1: no column `price`"),
        ([[f"Thing {n}", "red", "1", "0.5", ""] for n in range(30)], HEADER, "1 genres: a catalogue needs from 2"),
        ([], [], ":1: no column `name`"),
    ],
)
def test_a_broken_file_is_named(tmp_path, lines, header, words):
    with pytest.raises(ValueError) as refused:
        load(written(tmp_path, lines, header))
    assert "mine.csv" in str(refused.value) and words in str(refused.value) and "\n" not in str(refused.value)


def test_no_text_at_all_and_no_utf_8(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"name,genre,price,quality\n\xff\xfe,a,1,1\n")
    with pytest.raises(ValueError, match=r"bytes\.csv: byte \d+ is no UTF-8"):
        load(str(tmp_path / "bytes.csv"))


@given(st.lists(st.lists(st.text(max_size=8), max_size=6), max_size=25))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_a_catalogue_or_one_line(tmp_path, lines):
    path = written(tmp_path, [*rows(), *lines])
    try:
        catalogue = load(path)
    except ValueError as refused:
        assert "mine.csv" in str(refused) and "\n" not in str(refused)
    else:
        assert len(catalogue.items) >= LEAST
