"""Readers of CSV files that experiments name. Error messages are one line with file and row."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from games.base import to_one_line
from games.families.book import fold
from games.plain_files import open_plain

Row = Mapping[str, str]
MAX_BYTES = 4 * 10**9
"""Maximum file size in bytes; MovieLens' largest file has 0.9 GB."""


def read_rows(file: Path, columns: tuple[str, ...], purpose: str) -> Iterator[tuple[str, Row]]:
    """Yield (`file:line`, cells by column) of each row. Raises ValueError for a missing file, column or cell."""
    reader = csv.DictReader(_read_lines(file, purpose), strict=True)
    try:
        named = reader.fieldnames or ()
        missing = [column for column in columns if column not in named]
        if missing:
            raise ValueError(f"{file}:1: no column `{missing[0]}`: the first line must name {', '.join(columns)}")
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"{file}:{reader.line_num}: expected {len(named)} cells: quote texts with commas")
            yield f"{file}:{reader.line_num}", row
    except csv.Error as error:
        location = f"{file}:{reader.reader.line_num}"  # `DictReader` has not counted the failed row yet
        raise ValueError(f"{location}: invalid CSV ({error}): quote texts that contain commas or line breaks") from None


def _read_lines(file: Path, purpose: str) -> Iterator[str]:
    """Yield the file's lines. Raises ValueError if it is unreadable or not UTF-8."""
    try:
        with io.TextIOWrapper(open_plain(file, MAX_BYTES), encoding="utf-8-sig", newline="") as lines:
            yield from lines
    except UnicodeDecodeError:
        raise ValueError(f"{file}: the {purpose} is not UTF-8: save the file as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{file}: the {purpose} cannot be read ({error.strerror}): give a CSV file") from None


def read_number(location: str, row: Row, column: str, largest: float) -> float:
    """Return the number in a cell. Raises ValueError, naming `location` (file:line), unless it is in [0, largest]."""
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if not 0 <= value <= largest:
        excerpt = to_one_line(row[column], 40)
        raise ValueError(f"{location}: {column} must be a number from 0 to {largest:g}, not '{excerpt}': correct it")
    return value


def read_genres(location: str, cell: str) -> tuple[str, ...]:
    """Return the distinct, normalised genres of a cell such as `a|b`. Raises ValueError for one without letters."""
    named = list(filter(None, map(str.strip, cell.split("|"))))
    for genre in named:
        if not fold(genre):
            excerpt = to_one_line(genre, 40)
            raise ValueError(f"{location}: the genre `{excerpt}` has no letter from a to z: name it with those")
    return tuple(dict.fromkeys(map(fold, named)))


def line_number(location: str) -> str:
    """Return the line number, as text, of a location `file:line`."""
    return location.rpartition(":")[2]
