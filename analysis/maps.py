"""A map of strategies: matches (or turns) as points that are near where they mean alike, and how play moves over it.

Clusters are k-means of sentence vectors, each told by its exemplar, the text nearest to its middle. Of every iteration
the same number of texts is drawn, since both curves grow with it:

diversity  the Vendi score (Friedman and Dieng 2023): exp of the entropy of the eigenvalues of K / n, K the cosines of
           the n texts; how many different texts there would be if they had nothing in common, 1 where all are the same
novelty    the mean distance (1 - cosine) of a text to the nearest of as many texts drawn from all earlier iterations

Where play changed most is found by a kernel change point (Harchaoui and Cappé 2007, with the linear kernel): the
iteration k at which n₁ n₂ / n² |mean before - mean from k on|² is greatest, with the share of random orders of the
same matches in which the greatest is as great. That is the chance of an alarm where nothing changed; slow drift is a
change, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from analysis.frames import Frames
from analysis.texts import Embedding, Unit, grouped, index, texts, vectors
from arena.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

EACH = 64
"""Texts of an iteration that are looked at, unless told otherwise."""
ORDERS = 199
"""Random orders against which a change is held."""
FEW, NEARLY = 2, 0.8
"""Texts, and the share of what an iteration has as a rule, without which one is no point of a curve."""


class Change(NamedTuple):
    """The iteration at which play changed most."""

    iteration: int
    """The first that is of the new kind."""
    p: float
    """Share of random orders with as great a change, the one seen included: at least 1 / (ORDERS + 1)."""
    share: float
    """Of the vectors' whole spread, what lies between the two sides: 0 to 1."""


@dataclass(frozen=True)
class StrategyMap:
    """Findings of `strategy_map`."""

    rows: pd.DataFrame
    """A row per text that was looked at: run, match, iteration, …, text, cluster, x, y (the two main directions)."""
    vectors: Vectors
    """Of the rows [n, d], of unit length."""
    clusters: pd.DataFrame
    """A row per cluster, the largest first: exemplar, its match and iteration, size (texts), spread (mean distance)."""
    shares: pd.DataFrame
    """A row per iteration, a column per cluster: its share of the iteration's texts."""
    curves: pd.DataFrame
    """A row per iteration: texts, diversity, novelty; NaN where too few were said, and for the first's novelty."""
    change: Change | None
    """None for fewer than two iterations."""


def strategy_map(
    log: Frames,
    of: Unit = "matches",
    clusters: int = 6,
    each: int = EACH,
    embedding: Embedding = "minilm",
    seed: int = 0,
) -> StrategyMap:
    """The map of what was said, at most `each` texts an iteration, drawn by `seed`; StoreError where nothing was said.

    >>> found = strategy_map(log, clusters=2, embedding="hashed")
    >>> found.clusters[["size", "match"]].values.tolist(), found.curves["texts"].tolist()
    ([[9, '0000-0000'], [3, '0000-0003']], [4, 4, 4])
    """
    if clusters < 1 or each < FEW:
        raise ValueError("a map needs at least one cluster and two texts of an iteration")
    rng = np.random.default_rng(seed)
    said = texts(log, of)
    if said.empty:
        raise StoreError(f"there is no map of {', '.join(log.readers)}: nothing was said")
    rows = pd.concat(
        [own.iloc[np.sort(rng.permutation(len(own))[:each])] for _, own in said.groupby("iteration")],
        ignore_index=True,
    )
    read, numbers = vectors(rows["text"].tolist(), embedding), rows["iteration"].to_numpy(np.int64)
    rows["cluster"], told = _clustered(rows, read, clusters, seed)
    rows[["x", "y"]] = _plane(read)
    shares = rows.groupby(["iteration", "cluster"]).size().unstack("cluster", fill_value=0)
    return StrategyMap(
        rows=rows,
        vectors=read,
        clusters=told,
        shares=shares.div(shares.sum(axis=1), axis=0),
        curves=_curves(read, numbers, rng),
        change=change_point(read, numbers, seed),
    )


def vendi(of: Vectors) -> float:
    """The Vendi score of unit vectors [n, d]: from 1, all alike, to n, nothing in common.

    >>> round(vendi(np.eye(3, dtype=np.float32)), 6), round(vendi(np.ones((3, 1), np.float32)), 6)
    (3.0, 1.0)
    """
    weights = np.linalg.svd(np.asarray(of, np.float64), compute_uv=False) ** 2
    weights = weights[weights > 1e-12] / weights.sum()
    return float(np.exp(-(weights * np.log(weights)).sum()))


def change_point(of: Vectors, iterations: NDArray[np.int64], seed: int = 0, orders: int = ORDERS) -> Change | None:
    """Find where unit vectors [n, d] of these iterations [n] changed most; None for fewer than two iterations.

    >>> change_point(np.repeat(np.eye(2, dtype=np.float32), 20, axis=0), np.arange(40) // 4)
    Change(iteration=5, p=0.005, share=1.0)
    """
    numbers, place = np.unique(iterations, return_inverse=True)
    if len(numbers) < 2:
        return None
    centred = np.asarray(of - of.mean(axis=0), np.float64)
    spread = float((centred**2).sum() / len(of))
    if spread < 1e-9:
        return Change(int(numbers[1]), 1.0, 0.0)
    basis = np.linalg.svd(centred, full_matrices=False)[2][:32]
    flat = centred @ basis.T  # what lies in the other directions is too little to move the greatest
    rng = np.random.default_rng(seed)
    seen = _between(flat, place, len(numbers))
    at = int(np.argmax(seen))
    drawn = [_between(flat, rng.permutation(place), len(numbers)).max() for _ in range(orders)]
    p = (1 + int(np.sum(np.array(drawn) >= seen[at] - 1e-12))) / (orders + 1)
    return Change(int(numbers[at + 1]), p, round(min(1.0, float(seen[at]) / spread), 6))


def _between(of: NDArray[np.float64], place: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """n₁ n₂ / n² |difference of the means|² for a parting after each iteration but the last, of centred vectors."""
    sums = np.zeros((count, of.shape[1]))
    np.add.at(sums, place, of)
    before, n = sums.cumsum(axis=0)[:-1], np.bincount(place, minlength=count).cumsum()[:-1]
    # of centred vectors the sum after is the sum before with the other sign
    return np.asarray((before**2).sum(axis=1) / (n * (len(of) - n)))


def _clustered(rows: pd.DataFrame, read: Vectors, clusters: int, seed: int) -> tuple[NDArray[np.int64], pd.DataFrame]:
    """The cluster of each row, the largest being 0, and what they are."""
    unique = len(np.unique(read, axis=0))
    found, centres = grouped(read, min(clusters, unique), seed)
    order = [int(place) for place in np.argsort(-np.bincount(found, minlength=len(centres)), kind="stable")]
    number = np.empty(len(centres), np.int64)
    number[order] = np.arange(len(order))
    told = []
    for place in order:
        own = np.flatnonzero(found == place)
        if not len(own):
            continue
        middle = centres[place] / max(float(np.linalg.norm(centres[place])), 1e-9)
        near = read[own] @ middle
        row = rows.iloc[int(own[np.argmax(near)])]
        told.append({"exemplar": row["text"], "match": row["match"], "iteration": int(row["iteration"]),
                     "size": len(own), "spread": float(1 - near.mean())})  # fmt: skip
    return number[found], pd.DataFrame(told)


def _plane(read: Vectors) -> NDArray[np.float64]:
    """The vectors' places [n, 2] along the two directions in which they differ most."""
    centred = np.asarray(read - read.mean(axis=0), np.float64)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])  # an SVD's own are arbitrary
    plane = np.zeros((len(read), 2))
    plane[:, : min(2, len(sizes))] = (left * sizes * signs)[:, :2]
    return plane


def _curves(read: Vectors, numbers: NDArray[np.int64], rng: np.random.Generator) -> pd.DataFrame:
    """Diversity and novelty, each of as many texts in every iteration that has them."""
    counts = pd.Series(numbers).value_counts()
    least = max(FEW, int(NEARLY * counts.median()))
    return pd.DataFrame(list(_points(read, numbers, least, rng))).set_index("iteration")


def _points(
    read: Vectors, numbers: NDArray[np.int64], count: int, rng: np.random.Generator
) -> Iterator[dict[str, float]]:
    for number in np.unique(numbers):
        own, earlier = np.flatnonzero(numbers == number), np.flatnonzero(numbers < number)
        diversity = novelty = np.nan
        if len(own) >= count:
            drawn = rng.permutation(own)[:count]
            diversity = vendi(read[drawn])
            if len(earlier) >= count:
                past = index(read[rng.permutation(earlier)[:count]])
                novelty = float(1 - np.minimum(past.search(read[drawn], 1)[0], 1).mean())
        yield {"iteration": int(number), "texts": len(own), "diversity": diversity, "novelty": novelty}
