"""Ratings of the user's own: broken rows are named, and fitted tastes match those in the file."""

import csv
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulators.conformance import play
from simulators.recommender import Recommender
from simulators.recommender.ratings import NO_GENRE, compute_tastes, fit_dirichlet, fit_population, load_ratings

HEADER = ["userId", "movieId", "rating", "title", "genres"]
GENRES = ("drama", "sci fi", "war", "western")


def written(tmp_path, lines, header=HEADER, name="ratings.csv"):
    file = tmp_path / name
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header, *lines])
    return str(file)


def made_up(users=120, items=80, each=40, strength=1.5, middle=3.0, seed=0):
    """Users who rate up to a star and a half more or less by genre, as their tastes have it."""
    rng = np.random.default_rng(seed)
    liking = rng.choice([-strength, strength], size=(users, len(GENRES)))
    quality = rng.normal(0, 0.4, size=items)
    lines = []
    for user in range(users):
        for item in rng.choice(items, each, replace=False):
            stars = middle + quality[item] + liking[user, item % len(GENRES)] + rng.normal(0, 0.4)
            stars = min(5.0, max(0.5, round(2 * stars) / 2))
            lines.append([f"u{user}", f"m{item}", stars, f"Film {item}", GENRES[item % len(GENRES)]])
    return lines


def test_dirichlet_parameters_are_found_again():
    parameters = np.array([0.5, 2.0, 1.0, 4.0])
    shares = np.random.default_rng(0).dirichlet(parameters, size=5000)
    assert fit_dirichlet(shares) == pytest.approx(parameters, rel=0.1)


def test_what_is_common_is_no_taste(tmp_path):
    lines = made_up(strength=0.0, middle=4.0)
    rare = [line for n, line in enumerate(lines) if line[4] != "war" or n % 10 == 0]
    shares = compute_tastes(load_ratings(written(tmp_path, rare))).mean(axis=0)
    assert shares == pytest.approx(0.25, abs=0.08)


def test_a_population_of_real_tastes_is_played(tmp_path):
    path = written(tmp_path, made_up())
    genres, parameters = fit_population(path)
    assert genres == GENRES and all(each > 0 for each in parameters)
    game = Recommender(ratings=path, days=1)
    assert game.shelf.catalogue.genres == GENRES and play(game, 0, "oracle")["score"] == 1
    with pytest.raises(ValueError, match="leave out steepness"):
        Recommender(ratings=path, steepness=2.0)


def test_genres_may_stand_in_a_file_beside(tmp_path):
    lines = made_up(users=4, each=5)
    written(
        tmp_path, sorted({(line[1], line[3], line[4]) for line in lines}), ["movieId", "title", "genres"], "movies.csv"
    )
    with_genres = load_ratings(written(tmp_path, lines, name="all.csv"))
    without = load_ratings(written(tmp_path, [line[:3] for line in lines], HEADER[:3]))
    assert without.genres == with_genres.genres and (without.genre_shares == with_genres.genre_shares).all()


def test_a_file_beside_is_read_where_the_column_is_blank_and_numbers_may_have_blanks(tmp_path):
    lines = [["u0", " m0", "3", "F", ""], ["u0", "m1 ", "3", "G", NO_GENRE], ["u1", "m0", "4", "F", " "]]
    written(tmp_path, [["m0", "war"], [" m1", "drama|war"]], ["movieId", "genres"], "movies.csv")
    read = load_ratings(written(tmp_path, lines))
    assert read.genres == ("drama", "war") and read.genre_shares.tolist() == [[0, 1], [0.5, 0.5]]
    own = load_ratings(
        written(tmp_path, [[f"{cell} " for cell in line] for line in made_up(4, each=5)], name="own.csv")
    )
    assert (own.genre_shares.sum(axis=1) == 1).all()


@pytest.mark.slow
def test_a_rating_takes_few_bytes(tmp_path):
    path = written(
        tmp_path, [[f"u{n // 200}", f"m{n % 200}", 3, "F", "war" if n % 2 else "drama"] for n in range(40_000)]
    )
    tracemalloc.start()
    read = load_ratings(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read.stars) == 40_000 and most < 150 * 40_000


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["u1", "m1", "six", "", "war"], ":4: rating must be a number from 0 to 5, not 'six'"),
        (["u1", "m1", "nan", "", "war"], ":4: rating must be a number"),
        (["u1", "m1", "-1", "", "war"], ":4: rating must be a number"),
        (["", "m1", "3", "", "war"], ":4: userId is empty"),
        (["u1", " ", "3", "", "war"], ":4: movieId is empty"),
        (["u0", "m0", "3", "", "war"], ":4: user and item are those of line 2: keep one row"),
        (["u1", "m1", "3"], ":4: 5 cells are due"),
        (["u1", "m2", "3", "", "ужасы"], ":4: the genre `ужасы` has no letter from a to z"),
    ],
)
def test_a_broken_row_is_named(tmp_path, row, words):
    lines = [["u0", "m0", "3", "F", "war"], ["u0", "m1", "3", "F", "drama|war"], row]
    with pytest.raises(ValueError) as refused:
        load_ratings(written(tmp_path, lines))
    assert f"ratings.csv{words}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "header", "words"),
    [
        ([], HEADER, "no ratings"), ([["u", "m", "3"]], HEADER[:3], "no genres: add the column"),
        ([["u", "m", "3", "F", "war"]], ["user", *HEADER[1:]], ":1: no column `userId`"),
        ([["u", "m", "3", "F", "war"]], HEADER, "1 genres: from 2"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(tmp_path, lines, header, words):
    with pytest.raises(ValueError) as refused:
        load_ratings(written(tmp_path, lines, header))
    assert "ratings.csv" in str(refused.value) and words in str(refused.value) and "\n" not in str(refused.value)


@given(st.lists(st.lists(st.text(max_size=6), max_size=6), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_read_or_one_line(tmp_path, lines):
    path = written(tmp_path, [["u0", "m0", "3", "F", "war"], ["u0", "m1", "3", "F", "drama"], *lines])
    try:
        assert len(load_ratings(path).stars) >= 2
    except ValueError as refused:
        assert "ratings.csv" in str(refused) and "\n" not in str(refused)
