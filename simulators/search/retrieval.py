"""Text search: BM25 over words, inner products of embeddings, or both by reciprocal rank fusion."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from games.families.book import fold
from simulators.embedding import Embedding, embed, embed_catalogue
from simulators.nearest import build_index

Retriever = Literal["bm25", "dense", "hybrid"]
RETRIEVERS: tuple[Retriever, ...] = ("bm25", "dense", "hybrid")
MAX_QUERY = 1_000
"""Maximum number of characters of a query."""
POOL, FUSED = 50, 60
"""Hits per retriever in a hybrid search, and the constant of rank fusion (Cormack et al. 2009)."""


class Index:
    """Search index over texts, built at first use. Raises ValueError for no texts.

    `exact_words` makes BM25 compare words as they are written; else they are folded to a normal form.
    """

    def __init__(self, texts: Sequence[str], embedding: Embedding, exact_words: bool = False) -> None:
        if not texts:
            raise ValueError("there is nothing to search: the corpus is empty")
        self.texts, self.embedding, self.exact_words = texts, embedding, exact_words

    def find(self, query: str, count: int, retriever: Retriever = "bm25") -> list[int]:
        """Return the indices of up to `count` texts that match a query best, best first.

        "bm25" compares words and returns only texts that share one, "dense" compares embeddings, and "hybrid" fuses
        both rankings. Raises ValueError for a query without words or over 1,000 characters, and if a needed package is
        missing.
        """
        if len(query) > MAX_QUERY:
            raise ValueError(f"a query has at most {MAX_QUERY:,} characters, not {len(query):,}")
        if not fold(query):
            raise ValueError("a query needs words")
        if retriever == "bm25":
            return self._search_words(query, count)
        if retriever == "dense":
            return self._search_vectors(query, count)
        score: dict[int, float] = {}
        for hits in (self._search_words(query, POOL), self._search_vectors(query, POOL)):
            for rank, hit in enumerate(hits, 1):
                score[hit] = score.get(hit, 0.0) + 1 / (FUSED + rank)
        return sorted(score, key=lambda hit: (-score[hit], hit))[:count]

    def _split_words(self, text: str) -> list[str]:
        return text.split() if self.exact_words else fold(text).split()

    def _search_words(self, query: str, count: int) -> list[int]:
        words = [word for word in self._split_words(query) if word in self._bm25.vocab_dict]
        if not words:
            return []
        return _find_highest(self._bm25.get_scores(words), count)

    def _search_vectors(self, query: str, count: int) -> list[int]:
        _, found = self._vectors.search(embed([query], self.embedding), min(count, len(self.texts)))
        return [int(hit) for hit in found[0] if hit >= 0]

    @functools.cached_property
    def _bm25(self) -> Any:
        try:
            import bm25s
        except ImportError as error:
            raise ValueError(f"searching needs bm25s: pip install 'arena-selfplay[search]' ({error})") from None
        ids: dict[str, int] = {}
        numbered = [[ids.setdefault(word, len(ids)) for word in self._split_words(text)] for text in self.texts]
        index = bm25s.BM25()
        index.index((numbered, ids), show_progress=False)
        return index

    @functools.cached_property
    def _vectors(self) -> Any:
        return build_index(embed_catalogue(self.texts, self.embedding))


def _find_highest(scores: NDArray[np.float32], count: int) -> list[int]:
    """Return the indices of the `count` highest positive scores, highest first, equal ones in index order."""
    above = np.flatnonzero(scores > 0)
    if len(above) > count:
        threshold = np.partition(scores[above], len(above) - count)[len(above) - count]
        above = above[scores[above] >= threshold]
    return above[np.argsort(-scores[above], kind="stable")][:count].tolist()  # type: ignore[no-any-return]
