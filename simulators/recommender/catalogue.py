"""Catalogues of items: generated from a size and a seed, or loaded from a user's CSV file.

Titles are invented, so that a language model's knowledge of real ones cannot affect the outcome (Agent4Rec uses real
films).
"""

from __future__ import annotations

import functools
import itertools
import math
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
"""Minimum and maximum number of items in a catalogue."""
SECOND = 0.3
"""Share of generated items with a second genre."""
DEAREST = 40
CAPS = (15, 35)
"""Range of users' price caps in a generated catalogue, in crowns, both ends included."""
BUYABLE = (0.33, 0.86)
"""Share of a loaded catalogue's items within the lowest and the highest price cap, close to that of `CAPS`."""
COLUMNS = ("name", "genre", "price", "quality")
TEXT_LENGTH = 300


@dataclass(frozen=True)
class Item:
    """An item that can be recommended. `genres` are indices into the catalogue's genres, the main one first."""

    id: int
    name: str
    genres: tuple[int, ...]
    quality: float
    """In [0, 1]. The text contains only a hint."""
    price: float
    text: str
    """Text for the recommender, which is also embedded."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items by id and the names of their genres. Immutable, and shared by all matches."""

    genres: tuple[str, ...]
    items: tuple[Item, ...]
    caps: tuple[int, int] = CAPS
    """Range of users' price caps in crowns, both ends included."""

    @functools.cached_property
    def _finder(self) -> tuple[Any, Mapping[str, int]]:
        return finder(self.genres)

    def named(self, text: str) -> frozenset[int]:
        """Return the indices of the genres that a text names, in any spelling."""
        pattern, meanings = self._finder
        return frozenset(meanings[found] for found in pattern.findall(f" {fold(text)} "))

    def __deepcopy__(self, memo: object) -> Catalogue:
        """Return the same object: copied matches share the catalogue."""
        return self


def generate(size: int, seed: int, genres: tuple[str, ...] = tuple(GENRES)) -> Catalogue:
    """Generate a catalogue of `size` items from a seed: uniform genres, quality Beta(2, 2), prices from 3 to 40."""
    rng, called = np.random.default_rng([size, seed]), spellings(genres)
    titles = rng.choice(TITLES, size, replace=False)
    firsts = rng.integers(len(genres), size=size)
    steps = rng.integers(1, max(2, len(genres)), size=size)
    second = rng.random(size) < SECOND if len(genres) > 1 else np.zeros(size, bool)
    qualities, prices = rng.beta(2, 2, size).round(3), rng.integers(3, DEAREST + 1, size=size)
    words = rng.random((size, 2))
    items = []
    for n in range(size):
        own = (int(firsts[n]), *([int(firsts[n] + steps[n]) % len(genres)] if second[n] else ()))
        said = [
            spelled[int(share * len(spelled))]
            for spelled, share in zip((called[genres[g]] for g in own), words[n], strict=False)
        ]
        name, price, quality = title(int(titles[n])), float(prices[n]), float(qualities[n])
        items.append(Item(n, name, own, quality, price, described(name, said, price, hint(quality))))
    return Catalogue(genres, tuple(items))


def described(name: str, genres: list[str], price: float, remark: str) -> str:
    """Return an item's text for the recommender. `remark` is a hint at its quality or a text of its own."""
    return f"{name}: {' with a touch of '.join(genres)}. {price:g} crowns. {remark}"


def load(path: str) -> Catalogue:
    """Load a catalogue from a CSV file with columns name, genre (`a|b` for several), price, quality in [0, 1], [text].

    The users' range of price caps is set from the prices. Raises ValueError with the first invalid row and a remedy.
    """
    file = tables.file_of(path, "catalogue")
    rows = list(itertools.islice(_rows(file), MOST + 1))
    if not LEAST <= len(rows) <= MOST:
        count = len(rows) if len(rows) < LEAST else "too many"
        raise ValueError(f"{file}: {count} items: a catalogue needs from {LEAST} to {MOST:,}")
    genres = tuple(sorted({genre for row in rows for genre in row["genre"]}))
    if not 2 <= len(genres) <= len(LETTERS):
        raise ValueError(f"{file}: {len(genres)} genres: a catalogue needs from 2 to {len(LETTERS)}")
    items = tuple(_item(n, row, genres) for n, row in enumerate(rows))
    return Catalogue(genres, items, _caps([item.price for item in items]))


def _caps(prices: list[float]) -> tuple[int, int]:
    """Return a range of price caps that make part of the items too expensive, if prices differ enough."""
    low, high = (max(1, math.floor(price)) for price in np.quantile(prices, BUYABLE))
    return low, high


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield each row's validated cells by column, genre as a tuple. Raises ValueError for an invalid one."""
    seen: dict[str, str] = {}
    for where, row in tables.rows(file, COLUMNS, "catalogue"):
        name = one_line(row["name"])
        if not name:
            raise ValueError(f"{where}: the name is empty: name the item")
        if name in seen:
            raise ValueError(f"{where}: `{name}` is in line {seen[name]} already: name every item differently")
        seen[name] = tables.line_of(where)
        genres = tables.genres(where, row["genre"])
        if not genres:
            raise ValueError(f"{where}: the genre is empty: name one, or several as a|b")
        price, quality = tables.number(where, row, "price", 1e6), tables.number(where, row, "quality", 1.0)
        text = one_line(row.get("text") or "", TEXT_LENGTH)
        yield {"name": name, "genre": genres, "price": price, "quality": quality, "text": text}


def _item(number: int, row: Mapping[str, Any], genres: tuple[str, ...]) -> Item:
    text = described(row["name"], list(row["genre"]), row["price"], row["text"] or hint(row["quality"]))
    own = tuple(genres.index(genre) for genre in row["genre"])
    return Item(number, row["name"], own, row["quality"], row["price"], text)
