"""Libraries: pages of a world or a corpus with their index, cached per process and shared by all matches."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from simulators.embedding import Embedding
from simulators.search.corpus import load_corpus
from simulators.search.pages import render
from simulators.search.questions import Question
from simulators.search.retrieval import Index
from simulators.search.world import World

MAX_CACHED, MAX_CACHED_LARGE = 64, 2
"""Cached libraries per process: of up to 2,000 pages, and larger ones or corpora (up to 300 MB each)."""
SMALL = 2_000
"""Maximum number of pages of a small library."""


class Key(NamedTuple):
    """Cache key of a library: number of pages or corpus file, seed of the world, terse or not, and embedding."""

    source: int | str
    """Number of pages, or the file of a corpus."""
    edition: int = 0
    terse: bool = False
    embedding: Embedding = "hashed"


@dataclass(frozen=True, eq=False)
class Library:
    """Pages by title with their search index, and the generated `world` or a corpus's `questions` about them."""

    pages: Mapping[str, str]
    index: Index
    world: World | None = None
    """The facts; None for a corpus of texts."""
    questions: tuple[Question, ...] = ()
    """Questions of a corpus."""

    @property
    def terse(self) -> bool:
        """True if names and pages are in terse codes."""
        return self.world is not None and self.world.terse

    @functools.cached_property
    def titles(self) -> tuple[str, ...]:
        """All titles, in the order of the index."""
        return tuple(self.pages)

    def find_titles(self, text: str) -> tuple[str, ...]:
        """Return the titles that occur in a text, in order and without repeats; of overlapping ones the longest."""
        words = [match.span() for match in re.finditer(r"\w[\w'-]*", text)]
        found, index = [], 0
        while index < len(words):
            spans = [
                (words[index][0], words[last - 1][1], last) for last in range(min(index + 4, len(words)), index, -1)
            ]
            named = next(((text[a:b], last) for a, b, last in spans if text[a:b] in self.pages), None)
            found += [named[0]] if named else []
            index = named[1] if named else index + 1
        return tuple(dict.fromkeys(found))

    def __deepcopy__(self, memo: object) -> Library:
        """Return the same object: copied matches share the library."""
        return self


def load_library(key: Key) -> Library:
    """Return the library of this key, built at first use. Raises ValueError for an invalid file or a missing extra."""
    return (_build_small if isinstance(key.source, int) and key.source <= SMALL else _build_large)(key)


def _build(key: Key) -> Library:
    if isinstance(key.source, str):
        pages, questions = load_corpus(key.source)
        return Library(pages, _build_index(pages, key), questions=questions)
    world = World(key.source, key.edition, key.terse)
    pages = {name: render(world, name) for name in world.names}
    return Library(pages, _build_index(pages, key), world)


def _build_index(pages: Mapping[str, str], key: Key) -> Index:
    """Build the search index over titles and texts; generated pages already start with their title."""
    texts = [f"{title}. {text}" if isinstance(key.source, str) else text for title, text in pages.items()]
    return Index(texts, key.embedding, exact_words=key.terse)


_build_small = functools.lru_cache(maxsize=MAX_CACHED)(_build)
_build_large = functools.lru_cache(maxsize=MAX_CACHED_LARGE)(_build)
