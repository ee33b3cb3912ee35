"""Fit users' tastes to real ratings, for the game's option `ratings`.

Files have the MovieLens format: columns userId, movieId and rating in `ratings.csv`, and genres (`a|b`) either there or
in a `movies.csv` next to it. Arena contains no such file.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulators.recommender import tables
from simulators.recommender.words import LETTERS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MIN_LIKED_STARS = 4.0
"""Minimum stars of a rating that counts as liking."""
MIN_LIKED_RATINGS = 10
"""Minimum number of liked ratings of a user whose taste is used."""
NO_GENRE = "(no genres listed)"


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of a file as parallel arrays [n], and the genres of the items."""

    users: Ints
    """User index of each rating, [n]; `items` has the item index."""
    items: Ints
    stars: Floats
    genres: tuple[str, ...]
    genre_shares: Floats
    """[items, genres]: each item's genres in equal shares; rows sum to 1, or 0 without genres."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and items."""
        return int(self.users.max()) + 1, len(self.genre_shares)


def load_ratings(path: str) -> Ratings:
    """Load ratings, and genres from the same file or a `movies.csv` next to it. Raises ValueError with row and fix."""
    file = Path(expanduser(path))
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    genres_of: dict[str, tuple[str, ...]] = {}
    user_indices, item_indices, stars, lines = array("q"), array("q"), array("d"), array("q")
    for location, row in tables.read_rows(file, ("userId", "movieId", "rating"), "ratings"):
        user_indices.append(_assign_index(location, row, "userId", users))
        item_indices.append(_assign_index(location, row, "movieId", items))
        stars.append(tables.read_number(location, row, "rating", 5))
        lines.append(int(tables.line_number(location)))
        _record_genres(location, row, genres_of)
    if not lines:
        raise ValueError(f"{file}: no ratings: add a row for each below the first line")
    _refuse_duplicates(file, np.array(user_indices) * len(items) + np.array(item_indices), lines)
    movies = file.with_name("movies.csv")
    if not genres_of and movies.exists():
        for location, row in tables.read_rows(movies, ("movieId", "genres"), "genres"):
            _record_genres(location, row, genres_of)
    if not genres_of:
        raise ValueError(f"{file}: no genres: add the column `genres`, or a movies.csv with movieId and genres")
    genres, genre_shares = _share_genres(file, items, genres_of)
    return Ratings(np.array(user_indices), np.array(item_indices), np.array(stars), genres, genre_shares)


def _assign_index(location: str, row: tables.Row, column: str, indices: dict[str, int]) -> int:
    name = row[column].strip()
    if not name:
        raise ValueError(f"{location}: {column} is empty: fill it in, or leave the row out")
    return indices.setdefault(name, len(indices))


def _record_genres(location: str, row: tables.Row, genres_of: dict[str, tuple[str, ...]]) -> None:
    """Record the genres of the row's item, if it has any and none were recorded before."""
    item, cell = row["movieId"].strip(), row.get("genres", "").strip()
    if cell not in ("", NO_GENRE) and item not in genres_of:
        genres_of[item] = tables.read_genres(location, cell)


def _refuse_duplicates(file: Path, pairs: Ints, lines: array[int]) -> None:
    """Raise ValueError if two lines rate the same item by the same user. `pairs` encodes user and item as a number."""
    _, firsts, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    first = firsts[inverse]
    duplicates = np.flatnonzero(first != np.arange(len(pairs)))
    if len(duplicates):
        line, first_line = lines[duplicates[0]], lines[first[duplicates[0]]]
        raise ValueError(f"{file}:{line}: same user and item as in line {first_line}: keep one row")


def _share_genres(
    file: Path, items: Mapping[str, int], genres_of: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], Floats]:
    item_genres = {item: genres_of.get(name, ()) for name, item in items.items()}
    genres = tuple(sorted({genre for each in item_genres.values() for genre in each}))
    if not 2 <= len(genres) <= len(LETTERS):
        raise ValueError(f"{file}: {len(genres)} genres: from 2 to {len(LETTERS)} are needed")
    genre_shares = np.zeros((len(items), len(genres)))
    for item, each in item_genres.items():
        for genre in each:
            genre_shares[item, genres.index(genre)] = 1 / len(each)
    return genres, genre_shares


@functools.lru_cache(maxsize=2)
def fit_population(path: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return a file's genres and the Dirichlet parameters fitted to its users' tastes, cached.

    Raises ValueError for an invalid file, or one with too few ratings.
    """
    ratings = load_ratings(path)
    try:
        return ratings.genres, tuple(float(each) for each in fit_dirichlet(compute_tastes(ratings)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def compute_tastes(ratings: Ratings) -> Floats:
    """Return the tastes [users, genres] of the users with at least `MIN_LIKED_RATINGS` liked ratings; rows sum to 1.

    A taste is proportional to (liked + share) / share, where `liked` counts the user's liked ratings of a genre and
    `share` is the genre's share of all ratings, so that a common genre is not a taste. Raises ValueError for fewer than
    two such users.
    """
    users, _ = ratings.shape
    is_liked = ratings.stars >= MIN_LIKED_STARS
    counts = np.zeros((users, len(ratings.genres)))
    np.add.at(counts, ratings.users[is_liked], ratings.genre_shares[ratings.items[is_liked]])
    share = ratings.genre_shares[ratings.items].mean(axis=0)
    ratios = (counts[counts.sum(axis=1) >= MIN_LIKED_RATINGS] + share) / share
    if len(ratios) < 2:
        raise ValueError(f"fewer than two users like at least {MIN_LIKED_RATINGS} items: tastes cannot be fitted")
    return np.asarray(ratios / ratios.sum(axis=1, keepdims=True))


def fit_dirichlet(shares: Floats) -> Floats:
    """Return Dirichlet parameters [genres] fitted to tastes [users, genres] by mean and variance (Minka 2000)."""
    mean, variance = shares.mean(axis=0), shares.var(axis=0)
    concentration = (mean * (1 - mean)).sum() / max(float(variance.sum()), 1e-9) - 1
    return np.asarray(mean * max(float(concentration), 0.1))
