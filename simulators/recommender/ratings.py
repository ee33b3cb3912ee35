"""Real ratings, where the user has them: what tastes they show, and how well simulated users agree with real ones.

    python -m simulators.recommender ratings.csv      # agreement on held-out users, as JSON

Files are as MovieLens has them: userId, movieId, rating in `ratings.csv`, and genres (`a|b`) either there or in a
`movies.csv` beside it. None is part of Arena. The option `ratings` of the game draws users from what is fitted here.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulators.base import held_out
from simulators.recommender import tables
from simulators.recommender.chance import uniform
from simulators.recommender.words import LETTERS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LIKED = 4.0
"""Stars from which on a rating says that the item was liked."""
ENOUGH = 10
"""Liked ratings that a user needs for its taste to be counted."""
SHRINK_ITEM, SHRINK_USER, SHRINK_GENRE = 5.0, 5.0, 10.0
"""Ratings that a prior of 0 is worth, in the means of an item, a user, a user's genre."""
SHOWN = 0.8
"""The share of a held-out user's ratings that its taste is read from; the others are predicted."""
RANK = 10
"""Rank of the matrix factorisation."""
NO_GENRE = "(no genres listed)"


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings by row."""

    users: Ints
    """[n], indices from 0."""
    items: Ints
    stars: Floats
    genres: tuple[str, ...]
    belongs: Floats
    """[items, genres]: each item's genres, in equal shares; rows sum to 1, or to 0 of an item without any."""
    names: tuple[str, ...]
    """Names of the users, as the file has them: by these they are held out."""

    @property
    def shape(self) -> tuple[int, int]:
        """Users and items."""
        return int(self.users.max()) + 1, len(self.belongs)


def load(path: str) -> Ratings:
    """The ratings in this CSV file; ValueError names a broken row, what is wrong and how to mend it."""
    file = tables.file_of(path, "ratings")
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    genres_of: dict[str, tuple[str, ...]] = {}
    who, what, stars, lines = array("q"), array("q"), array("d"), array("q")
    for where, row in tables.rows(file, ("userId", "movieId", "rating"), "ratings"):
        who.append(_number_of(where, row, "userId", users))
        what.append(_number_of(where, row, "movieId", items))
        stars.append(tables.number(where, row, "rating", 5))
        lines.append(int(tables.line_of(where)))
        _note_genres(where, row, genres_of)
    if not lines:
        raise ValueError(f"{file}: no ratings: a row for each is due below the first line")
    _refuse_doubles(file, np.array(who) * len(items) + np.array(what), lines)
    beside = file.with_name("movies.csv")
    if not genres_of and beside.exists():
        for where, row in tables.rows(beside, ("movieId", "genres"), "genres"):
            _note_genres(where, row, genres_of)
    if not genres_of:
        raise ValueError(f"{file}: no genres: add the column `genres`, or a movies.csv beside with movieId and genres")
    genres, belongs = _membership(file, items, genres_of)
    return Ratings(np.array(who), np.array(what), np.array(stars), genres, belongs, tuple(users))


def _number_of(where: str, row: tables.Row, column: str, known: dict[str, int]) -> int:
    name = row[column].strip()
    if not name:
        raise ValueError(f"{where}: {column} is empty: fill it in, or leave the row out")
    return known.setdefault(name, len(known))


def _note_genres(where: str, row: tables.Row, genres_of: dict[str, tuple[str, ...]]) -> None:
    """The genres of the row's item, where it has a cell that names some and none was there before."""
    item, cell = row["movieId"].strip(), row.get("genres", "").strip()
    if cell not in ("", NO_GENRE) and item not in genres_of:
        genres_of[item] = tables.genres(where, cell)


def _refuse_doubles(file: Path, pairs: Ints, lines: array[int]) -> None:
    """ValueError where a pair of a user and an item, each a number here, stands in two lines."""
    _, firsts, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    first = firsts[inverse]
    again = np.flatnonzero(first != np.arange(len(pairs)))
    if len(again):
        here, there = lines[again[0]], lines[first[again[0]]]
        raise ValueError(f"{file}:{here}: user and item are those of line {there}: keep one row")


def _membership(
    file: Path, items: Mapping[str, int], genres_of: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], Floats]:
    own = {item: genres_of.get(name, ()) for name, item in items.items()}
    genres = tuple(sorted({genre for each in own.values() for genre in each}))
    if not 2 <= len(genres) <= len(LETTERS):
        raise ValueError(f"{file}: {len(genres)} genres: from 2 to {len(LETTERS)} are needed")
    belongs = np.zeros((len(items), len(genres)))
    for item, each in own.items():
        for genre in each:
            belongs[item, genres.index(genre)] = 1 / len(each)
    return genres, belongs


# What tastes they show.


@functools.lru_cache(maxsize=2)
def population(path: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The genres of a file, and the Dirichlet parameters of its users' tastes."""
    ratings = load(path)
    try:
        return ratings.genres, tuple(float(each) for each in dirichlet(tastes(ratings)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def tastes(ratings: Ratings) -> Floats:
    """[users, genres], rows sum to 1: how much more of a genre a user likes than there is of it, for users with enough.

    Of each genre the user's liked ratings over that genre's share of everybody's ratings, and 1 more, so that no share
    is 0: what is common is not a taste.
    """
    users, _ = ratings.shape
    liked = ratings.stars >= LIKED
    counts = np.zeros((users, len(ratings.genres)))
    np.add.at(counts, ratings.users[liked], ratings.belongs[ratings.items[liked]])
    share = ratings.belongs[ratings.items].mean(axis=0)
    lifted = (counts[counts.sum(axis=1) >= ENOUGH] + share) / share
    if len(lifted) < 2:
        raise ValueError(f"fewer than two users like {ENOUGH} items or more: tastes cannot be fitted")
    return np.asarray(lifted / lifted.sum(axis=1, keepdims=True))


def dirichlet(shares: Floats) -> Floats:
    """Dirichlet parameters [genres] of these tastes [users, genres], by their means and variances (Minka 2000)."""
    mean, variance = shares.mean(axis=0), shares.var(axis=0)
    concentration = (mean * (1 - mean)).sum() / max(float(variance.sum()), 1e-9) - 1
    return np.asarray(mean * max(float(concentration), 0.1))


# How well simulated users agree.


def agreement(ratings: Ratings) -> dict[str, Any]:
    """RMSE and accuracy on liked or not, of ratings that nobody was shown, of users held out by a hash.

    `simulated`: stars = mean + user + item + weight x affinity, the user's affinity being read per genre from what was
    shown of its ratings, and the weight fitted on all that was shown, of held-out users too; as a simulated user rates
    what it clicks. Beside it the `mean` of all, user and item means without taste (`no_taste`), and a `factorisation`
    (scikit-learn's truncated SVD, rank 10, of what means leave over), each from the same ratings.
    """
    tested = _tested(ratings)
    if not tested.any():
        raise ValueError("no user is held out: agreement needs some tens of users")
    shown = ~tested
    bias = _biases(ratings, shown)
    affinity = _affinities(ratings, shown, ratings.stars - bias)
    weight = _weight(affinity[shown], (ratings.stars - bias)[shown])
    predictions = {
        "mean": np.full(len(tested), ratings.stars[shown].mean()),
        "no_taste": bias,
        "factorisation": bias + _factorised(ratings, shown, ratings.stars - bias),
        "simulated": bias + weight * affinity,
    }
    truth = ratings.stars[tested]
    report: dict[str, Any] = {"ratings": int(tested.sum()), "users": len(np.unique(ratings.users[tested]))}
    report |= {"liked": float((truth >= LIKED).mean()), "weight": weight}
    return report | {name: _errors(predicted[tested], truth) for name, predicted in predictions.items()}


def _errors(predicted: Floats, truth: Floats) -> dict[str, float]:
    predicted = np.clip(predicted, 0.5, 5)
    right = (predicted >= _threshold()) == (truth >= LIKED)
    return {"rmse": float(np.sqrt(((predicted - truth) ** 2).mean())), "accuracy": float(right.mean())}


def _threshold() -> float:
    """Predicted stars that count as liked: half way to the half star below, as stars come in halves."""
    return LIKED - 0.25


def _tested(ratings: Ratings) -> NDArray[np.bool_]:
    """[n]: of held-out users, the ratings that are to be predicted."""
    out = np.array([held_out(f"ratings:{name}") for name in ratings.names])
    chance = np.array([uniform(0, int(u), int(i)) for u, i in zip(ratings.users, ratings.items, strict=True)])
    return np.asarray(out[ratings.users] & (chance >= SHOWN))


def _biases(ratings: Ratings, shown: NDArray[np.bool_]) -> Floats:
    """[n]: the mean, what the item is over it and what the user is over that, shrunk (Koren 2008)."""
    users, items = ratings.shape
    mean = ratings.stars[shown].mean()
    rest = ratings.stars - mean
    item = _shrunk(ratings.items[shown], rest[shown], items, SHRINK_ITEM)[ratings.items]
    user = _shrunk(ratings.users[shown], (rest - item)[shown], users, SHRINK_USER)[ratings.users]
    return np.asarray(mean + item + user)


def _shrunk(where: Ints, values: Floats, count: int, prior: float) -> Floats:
    return np.asarray(np.bincount(where, values, count) / (np.bincount(where, minlength=count) + prior))


def _affinities(ratings: Ratings, shown: NDArray[np.bool_], rest: Floats) -> Floats:
    """[n]: what the user's ratings of the item's genres are over its others; of a shown one, without itself."""
    users, _ = ratings.shape
    own = ratings.belongs[ratings.items]
    sums, weights = np.zeros((users, len(ratings.genres))), np.zeros((users, len(ratings.genres)))
    np.add.at(sums, ratings.users[shown], own[shown] * rest[shown, None])
    np.add.at(weights, ratings.users[shown], own[shown])
    mine = own * shown[:, None]
    there = (sums[ratings.users] - mine * rest[:, None]) / (weights[ratings.users] - mine + SHRINK_GENRE)
    return np.asarray((own * there).sum(axis=1))


def _weight(affinity: Floats, rest: Floats) -> float:
    """The least-squares weight of affinity."""
    return float(affinity @ rest / max(float(affinity @ affinity), 1e-9))


def _factorised(ratings: Ratings, shown: NDArray[np.bool_], rest: Floats) -> Floats:
    """[n]: what a matrix of rank `RANK` makes of what means leave over; 0 where nothing was shown (PureSVD)."""
    try:
        from scipy.sparse import csr_matrix
        from sklearn.decomposition import TruncatedSVD
    except ImportError as error:
        raise ValueError(f"agreement needs scikit-learn: pip install 'arena-selfplay[recommender]' ({error})") from None
    matrix = csr_matrix((rest[shown], (ratings.users[shown], ratings.items[shown])), shape=ratings.shape)
    svd = TruncatedSVD(min(RANK, min(ratings.shape) - 1), random_state=0)
    left, right = svd.fit_transform(matrix), svd.components_.T
    return np.asarray((left[ratings.users] * right[ratings.items]).sum(axis=1))
