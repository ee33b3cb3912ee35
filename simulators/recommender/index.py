"""Catalogues with embeddings and a search index, cached per process and shared by all matches."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulators.embedding import Embedding, Vectors, embed, embed_catalogue
from simulators.nearest import build_index, kmeans
from simulators.recommender.catalogue import Catalogue, generate, load
from simulators.recommender.words import GENRES

NEIGHBOURS = 32
LEVELS, CODES = 3, 16
"""Levels of semantic ids, and centroids per level of the residual k-means."""


class Key(NamedTuple):
    """Cache key of a shelf: everything that determines its content."""

    source: int | str
    """Number of items to generate, or a CSV file."""
    edition: int
    embedding: Embedding
    genres: tuple[str, ...] = tuple(GENRES)


@dataclass(frozen=True, eq=False)
class Shelf:
    """Catalogue with its embeddings and search index, shared by all matches."""

    catalogue: Catalogue
    vectors: Vectors
    """Unit vectors [items, d]."""
    index: Any
    embedding: Embedding
    neighbours: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Cache of neighbours by item."""

    def find(self, words: str, count: int) -> tuple[int, ...]:
        """Return the ids of up to `count` items nearest to these words, nearest first."""
        return self._search(embed([words], self.embedding), count)

    def find_similar(self, item: int) -> tuple[int, ...]:
        """Return the ids of up to `NEIGHBOURS` other items nearest to an item, nearest first. Cached."""
        if item not in self.neighbours:
            found = self._search(self.vectors[item : item + 1], NEIGHBOURS + 1)
            self.neighbours[item] = tuple(each for each in found if each != item)[:NEIGHBOURS]
        return self.neighbours[item]

    def _search(self, query: Vectors, count: int) -> tuple[int, ...]:
        _, found = self.index.search(query, min(count, len(self.vectors)))
        return tuple(int(each) for each in found[0] if each >= 0)

    @functools.cached_property
    def codes(self) -> tuple[str, ...]:
        """Semantic ids of all items, in catalogue order, such as `c-7-a-0`. Similar items share prefixes."""
        return semantic_ids(self.vectors)

    @functools.cached_property
    def by_code(self) -> dict[str, int]:
        """Item id of each semantic id."""
        return {code: item for item, code in enumerate(self.codes)}

    def __deepcopy__(self, memo: object) -> Shelf:
        """Return the same object: copied matches share the shelf."""
        return self


@functools.lru_cache(maxsize=4)
def load_shelf(key: Key) -> Shelf:
    """Return the shelf of this key, built once and cached. Raises ValueError for an invalid file or missing extra."""
    catalogue = load(key.source) if isinstance(key.source, str) else generate(key.source, key.edition, key.genres)
    texts = [item.text.removeprefix(item.name) for item in catalogue.items]  # titles are arbitrary
    vectors = embed_catalogue(texts, key.embedding)
    return Shelf(catalogue, vectors, build_index(vectors), key.embedding)


def semantic_ids(vectors: Vectors) -> tuple[str, ...]:
    """Return a unique code for each vector [n, d]: one digit per level of residual k-means, then a tie-breaking number.

    As in TIGER (Rajput et al. 2023), with k-means instead of its autoencoder. Each level clusters the residuals of the
    previous level, so similar items share prefixes.
    """
    residual, levels = vectors.copy(), []
    for level in range(LEVELS):
        chosen = _subtract_centroids(residual, level)
        levels.append(chosen)
    counts: dict[tuple[int, ...], int] = {}
    codes = []
    for digits in zip(*(level.tolist() for level in levels), strict=True):
        duplicate = counts[digits] = counts.get(digits, -1) + 1
        codes.append("-".join([*(f"{digit:x}" for digit in digits), str(duplicate)]))
    return tuple(codes)


def _subtract_centroids(residual: Vectors, seed: int) -> NDArray[np.int64]:
    """Cluster the rows, subtract each row's centroid in place, and return the index of each row's centroid."""
    nearest, centroids = kmeans(residual, CODES, seed)
    residual -= centroids[nearest]
    return nearest
