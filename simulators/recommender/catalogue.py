"""Catalogues of items: generated from a size and a seed, all of it fictional, or read from the user's own CSV file.

Invented titles keep what a language model knows of real ones out of the outcome (Agent4Rec's films are real).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from games.base import one_line
from games.families.book import fold
from simulators.recommender import tables
from simulators.recommender.words import GENRES, LETTERS, TITLES, finder, hint, spellings, title

LEAST, MOST = 20, 100_000
"""How many items a catalogue may hold."""
SECOND = 0.3
"""The share of generated items that are of a second genre too."""
DEAREST = 40
COLUMNS = ("name", "genre", "price", "quality")
TEXT_LENGTH = 300


@dataclass(frozen=True)
class Item:
    """One item; `genres` are indices of its catalogue's, one or several."""

    id: int
    name: str
    genres: tuple[int, ...]
    quality: float
    """In [0, 1]; the text only hints at it."""
    price: float
    text: str
    """What a recommender reads of it, and what is embedded."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items by their id, and the names of their genres; shared by all matches."""

    genres: tuple[str, ...]
    items: tuple[Item, ...]

    @functools.cached_property
    def _finder(self) -> tuple[Any, Mapping[str, int]]:
        return finder(self.genres)

    def named(self, text: str) -> frozenset[int]:
        """The genres that a text names, in any spelling."""
        pattern, meanings = self._finder
        return frozenset(meanings[found] for found in pattern.findall(f" {fold(text)} "))

    def __deepcopy__(self, memo: object) -> Catalogue:
        """Itself: a copied match shares its catalogue."""
        return self


def generate(size: int, seed: int, genres: tuple[str, ...] = tuple(GENRES)) -> Catalogue:
    """The catalogue of this size and seed: genres uniform, quality Beta(2, 2), prices from 3 to 40."""
    rng = np.random.default_rng([size, seed])
    titles = rng.choice(TITLES, size, replace=False)
    firsts = rng.integers(len(genres), size=size)
    steps = rng.integers(1, max(2, len(genres)), size=size)
    second = rng.random(size) < SECOND if len(genres) > 1 else np.zeros(size, bool)
    qualities, prices = rng.beta(2, 2, size).round(3), rng.integers(3, DEAREST + 1, size=size)
    words = rng.random((size, 2))
    items = []
    for n in range(size):
        own = (int(firsts[n]), *([int(firsts[n] + steps[n]) % len(genres)] if second[n] else ()))
        called = [
            spelled[int(share * len(spelled))]
            for spelled, share in zip((spellings(genres[g]) for g in own), words[n], strict=False)
        ]
        name, price, quality = title(int(titles[n])), float(prices[n]), float(qualities[n])
        items.append(Item(n, name, own, quality, price, described(name, called, price, quality)))
    return Catalogue(genres, tuple(items))


def described(name: str, genres: list[str], price: float, quality: float) -> str:
    """An item in words."""
    return f"{name}: {' with a touch of '.join(genres)}. {price:g} crowns. {hint(quality)}"


def load(path: str) -> Catalogue:
    """The catalogue in a CSV file with the columns name, genre (several: `a|b`), price, quality (0 to 1), maybe text.

    ValueError names the first broken row, what is wrong with it, and how to mend it.
    """
    file = Path(path).expanduser()
    rows = list(_rows(file))
    if not LEAST <= len(rows) <= MOST:
        raise ValueError(f"{file}: {len(rows)} items: a catalogue needs from {LEAST} to {MOST:,}")
    genres = tuple(sorted({genre for row in rows for genre in row["genre"]}))
    if not 2 <= len(genres) <= len(LETTERS):
        raise ValueError(f"{file}: {len(genres)} genres: a catalogue needs from 2 to {len(LETTERS)}")
    return Catalogue(genres, tuple(_item(n, row, genres) for n, row in enumerate(rows)))


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """Each item's cells, as they are meant."""
    seen: dict[str, str] = {}
    for where, row in tables.rows(file, COLUMNS, "catalogue"):
        name = one_line(row["name"])
        if not name:
            raise ValueError(f"{where}: the name is empty: name the item")
        if name in seen:
            raise ValueError(f"{where}: `{name}` is in line {seen[name]} already: name every item differently")
        seen[name] = tables.line_of(where)
        genres = tuple(dict.fromkeys(filter(None, map(fold, row["genre"].split("|")))))
        if not genres:
            raise ValueError(f"{where}: the genre is empty: name one, or several as a|b")
        price, quality = tables.number(where, row, "price", 1e6), tables.number(where, row, "quality", 1.0)
        text = one_line(row.get("text") or "", TEXT_LENGTH)
        yield {"name": name, "genre": genres, "price": price, "quality": quality, "text": text}


def _item(number: int, row: Mapping[str, Any], genres: tuple[str, ...]) -> Item:
    text = row["text"] or described(row["name"], list(row["genre"]), row["price"], row["quality"])
    own = tuple(genres.index(genre) for genre in row["genre"])
    return Item(number, row["name"], own, row["quality"], row["price"], text)
