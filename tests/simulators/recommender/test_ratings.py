"""User-provided ratings: invalid rows are named, and fitted tastes match the file."""

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


def write_csv(tmp_path, lines, header=HEADER, name="ratings.csv"):
    file = tmp_path / name
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header, *lines])
    return str(file)


def make_ratings(users=120, items=80, per_user=40, strength=1.5, middle=3.0, seed=0):
    """Return rating rows of users whose ratings shift by `strength` stars per genre, according to their tastes."""
    rng = np.random.default_rng(seed)
    liking = rng.choice([-strength, strength], size=(users, len(GENRES)))
    quality = rng.normal(0, 0.4, size=items)
    lines = []
    for user in range(users):
        for item in rng.choice(items, per_user, replace=False):
            stars = middle + quality[item] + liking[user, item % len(GENRES)] + rng.normal(0, 0.4)
            stars = min(5.0, max(0.5, round(2 * stars) / 2))
            lines.append([f"u{user}", f"m{item}", stars, f"Film {item}", GENRES[item % len(GENRES)]])
    return lines


def test_fit_recovers_dirichlet_parameters():
    parameters = np.array([0.5, 2.0, 1.0, 4.0])
    shares = np.random.default_rng(0).dirichlet(parameters, size=5000)
    assert fit_dirichlet(shares) == pytest.approx(parameters, rel=0.1)


def test_frequency_of_a_genre_is_not_taste(tmp_path):
    lines = make_ratings(strength=0.0, middle=4.0)
    few_war = [line for n, line in enumerate(lines) if line[4] != "war" or n % 10 == 0]
    shares = compute_tastes(load_ratings(write_csv(tmp_path, few_war))).mean(axis=0)
    assert shares == pytest.approx(0.25, abs=0.08)


def test_plays_a_population_with_fitted_tastes(tmp_path):
    path = write_csv(tmp_path, make_ratings())
    genres, parameters = fit_population(path)
    assert genres == GENRES and all(parameter > 0 for parameter in parameters)
    game = Recommender(ratings=path, days=1)
    assert game.shelf.catalogue.genres == GENRES and play(game, 0, "oracle")["score"] == 1
    with pytest.raises(ValueError, match="leave out steepness"):
        Recommender(ratings=path, steepness=2.0)


def test_genres_may_come_from_a_second_file(tmp_path):
    lines = make_ratings(users=4, per_user=5)
    write_csv(
        tmp_path, sorted({(line[1], line[3], line[4]) for line in lines}), ["movieId", "title", "genres"], "movies.csv"
    )
    with_genres = load_ratings(write_csv(tmp_path, lines, name="all.csv"))
    without = load_ratings(write_csv(tmp_path, [line[:3] for line in lines], HEADER[:3]))
    assert without.genres == with_genres.genres and (without.genre_shares == with_genres.genre_shares).all()


def test_second_file_fills_blank_genres_and_cells_are_stripped(tmp_path):
    lines = [["u0", " m0", "3", "F", ""], ["u0", "m1 ", "3", "G", NO_GENRE], ["u1", "m0", "4", "F", " "]]
    write_csv(tmp_path, [["m0", "war"], [" m1", "drama|war"]], ["movieId", "genres"], "movies.csv")
    ratings = load_ratings(write_csv(tmp_path, lines))
    assert ratings.genres == ("drama", "war") and ratings.genre_shares.tolist() == [[0, 1], [0.5, 0.5]]
    own_ratings = load_ratings(
        write_csv(tmp_path, [[f"{cell} " for cell in line] for line in make_ratings(4, per_user=5)], name="own.csv")
    )
    assert (own_ratings.genre_shares.sum(axis=1) == 1).all()


@pytest.mark.slow
def test_ratings_take_little_memory(tmp_path):
    path = write_csv(
        tmp_path, [[f"u{n // 200}", f"m{n % 200}", 3, "F", "war" if n % 2 else "drama"] for n in range(40_000)]
    )
    tracemalloc.start()
    ratings = load_ratings(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ratings.stars) == 40_000 and peak < 150 * 40_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["u1", "m1", "six", "", "war"], ":4: rating must be a number from 0 to 5, not 'six'"),
        (["u1", "m1", "nan", "", "war"], ":4: rating must be a number"),
        (["u1", "m1", "-1", "", "war"], ":4: rating must be a number"),
        (["", "m1", "3", "", "war"], ":4: userId is empty"),
        (["u1", " ", "3", "", "war"], ":4: movieId is empty"),
        (["u0", "m0", "3", "", "war"], ":4: same user and item as in line 2: keep one row"),
        (["u1", "m1", "3"], ":4: expected 5 cells"),
        (["u1", "m2", "3", "", "ужасы"], ":4: the genre `ужасы` has no letter from a to z"),
    ],
)
def test_refuses_invalid_rows_by_line(tmp_path, row, message):
    lines = [["u0", "m0", "3", "F", "war"], ["u0", "m1", "3", "F", "drama|war"], row]
    with pytest.raises(ValueError) as refused:
        load_ratings(write_csv(tmp_path, lines))
    assert f"ratings.csv{message}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "header", "message"),
    [
        ([], HEADER, "no ratings"), ([["u", "m", "3"]], HEADER[:3], "no genres: add the column"),
        ([["u", "m", "3", "F", "war"]], ["user", *HEADER[1:]], ":1: no column `userId`"),
        ([["u", "m", "3", "F", "war"]], HEADER, "1 genres: from 2"),
    ],
)  # fmt: skip
def test_refuses_invalid_files(tmp_path, lines, header, message):
    with pytest.raises(ValueError) as refused:
        load_ratings(write_csv(tmp_path, lines, header))
    assert "ratings.csv" in str(refused.value) and message in str(refused.value) and "\n" not in str(refused.value)


@given(st.lists(st.lists(st.text(max_size=6), max_size=6), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_loads_or_gives_one_line(tmp_path, lines):
    path = write_csv(tmp_path, [["u0", "m0", "3", "F", "war"], ["u0", "m1", "3", "F", "drama"], *lines])
    try:
        assert len(load_ratings(path).stars) >= 2
    except ValueError as refused:
        assert "ratings.csv" in str(refused) and "\n" not in str(refused)
