"""Catalogues of items: generated from a size and a seed, or loaded from a user's CSV file.

Generated titles are invented, so that a language model's knowledge of real ones cannot affect the outcome (Agent4Rec
uses real films).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Any

import numpy as np

from games.base import to_one_line
from games.families.book import fold
from simulators.recommender import tables
from simulators.recommender.words import GENRES, LETTERS, TITLES, compile_finder, hint_at, list_spellings, make_title

MIN_ITEMS, MAX_ITEMS = 20, 100_000
"""Minimum and maximum number of items in a catalogue."""
SECOND_GENRE_SHARE = 0.3
"""Share of generated items with a second genre."""
MAX_PRICE = 40
CAPS = (15, 35)
"""Range of users' price caps in a generated catalogue, in crowns, both ends included."""
BUYABLE = (0.33, 0.86)
"""Share of a loaded catalogue's items within the lowest and highest price cap, as in generated catalogues."""
COLUMNS = ("name", "genre", "price", "quality")
TEXT_LENGTH = 300


@dataclass(frozen=True)
class Item:
    """Item of the catalogue. `genres` are indices into the catalogue's genres, the main one first."""

    id: int
    name: str
    genres: tuple[int, ...]
    quality: float
    """Quality in [0, 1]; the text only hints at it."""
    price: float
    text: str
    """Text for the recommender, which is also embedded."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Items by id, and the names of their genres. Immutable and shared by all matches."""

    genres: tuple[str, ...]
    items: tuple[Item, ...]
    caps: tuple[int, int] = CAPS
    """Range of users' price caps in crowns, both ends included."""

    @functools.cached_property
    def _finder(self) -> tuple[Any, Mapping[str, int]]:
        return compile_finder(self.genres)

    def find_genres(self, text: str) -> frozenset[int]:
        """Return the indices of the genres that a text names, in any spelling."""
        pattern, meanings = self._finder
        return frozenset(meanings[found] for found in pattern.findall(f" {fold(text)} "))

    def __deepcopy__(self, memo: object) -> Catalogue:
        """Return the same object: copied matches share the catalogue."""
        return self


def generate(size: int, seed: int, genres: tuple[str, ...] = tuple(GENRES)) -> Catalogue:
    """Generate a catalogue of `size` items from a seed: uniform genres, Beta(2, 2) qualities, prices from 3 to 40."""
    rng, names = np.random.default_rng([size, seed]), list_spellings(genres)
    titles = rng.choice(TITLES, size, replace=False)
    firsts = rng.integers(len(genres), size=size)
    steps = rng.integers(1, max(2, len(genres)), size=size)
    second = rng.random(size) < SECOND_GENRE_SHARE if len(genres) > 1 else np.zeros(size, bool)
    qualities, prices = rng.beta(2, 2, size).round(3), rng.integers(3, MAX_PRICE + 1, size=size)
    words = rng.random((size, 2))
    items = []
    for n in range(size):
        genre_indices = (int(firsts[n]), *([int(firsts[n] + steps[n]) % len(genres)] if second[n] else ()))
        wordings = [
            spelled[int(share * len(spelled))]
            for spelled, share in zip((names[genres[g]] for g in genre_indices), words[n], strict=False)
        ]
        name, price, quality = make_title(int(titles[n])), float(prices[n]), float(qualities[n])
        items.append(Item(n, name, genre_indices, quality, price, describe(name, wordings, price, hint_at(quality))))
    return Catalogue(genres, tuple(items))


def describe(name: str, genres: list[str], price: float, remark: str) -> str:
    """Return an item's text for the recommender. `remark` is a hint at its quality, or the item's own text."""
    return f"{name}: {' with a touch of '.join(genres)}. {price:g} crowns. {remark}"


def load(path: str) -> Catalogue:
    """Load a catalogue from a CSV file with columns name, genre (`a|b` for several), price, quality in [0, 1], [text].

    The users' range of price caps is set from the prices. Raises ValueError that names the first invalid row and a fix.
    """
    file = Path(expanduser(path))
    rows = list(itertools.islice(_read_rows(file), MAX_ITEMS + 1))
    if not MIN_ITEMS <= len(rows) <= MAX_ITEMS:
        count = len(rows) if len(rows) < MIN_ITEMS else "too many"
        raise ValueError(f"{file}: {count} items: a catalogue needs from {MIN_ITEMS} to {MAX_ITEMS:,}")
    genres = tuple(sorted({genre for row in rows for genre in row["genre"]}))
    if not 2 <= len(genres) <= len(LETTERS):
        raise ValueError(f"{file}: {len(genres)} genres: a catalogue needs from 2 to {len(LETTERS)}")
    items = tuple(_make_item(n, row, genres) for n, row in enumerate(rows))
    return Catalogue(genres, items, _choose_caps([item.price for item in items]))


def _choose_caps(prices: list[float]) -> tuple[int, int]:
    """Return a range of price caps that makes some of the items too expensive, if prices differ enough."""
    low, high = (max(1, math.floor(price)) for price in np.quantile(prices, BUYABLE))
    return low, high


def _read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield each row's validated cells by column, with genres as a tuple. Raises ValueError for an invalid row."""
    seen: dict[str, str] = {}
    for location, row in tables.read_rows(file, COLUMNS, "catalogue"):
        name = to_one_line(row["name"])
        if not name:
            raise ValueError(f"{location}: the name is empty: name the item")
        if name in seen:
            raise ValueError(f"{location}: `{name}` is in line {seen[name]} already: name every item differently")
        seen[name] = tables.line_number(location)
        genres = tables.read_genres(location, row["genre"])
        if not genres:
            raise ValueError(f"{location}: the genre is empty: name one, or several as a|b")
        price, quality = (
            tables.read_number(location, row, "price", 1e6),
            tables.read_number(location, row, "quality", 1.0),
        )
        text = to_one_line(row.get("text") or "", TEXT_LENGTH)
        yield {"name": name, "genre": genres, "price": price, "quality": quality, "text": text}


def _make_item(number: int, row: Mapping[str, Any], genres: tuple[str, ...]) -> Item:
    text = describe(row["name"], list(row["genre"]), row["price"], row["text"] or hint_at(row["quality"]))
    genre_indices = tuple(genres.index(genre) for genre in row["genre"])
    return Item(number, row["name"], genre_indices, row["quality"], row["price"], text)
