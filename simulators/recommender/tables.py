"""Tables that users bring, as CSV files: what is wrong with one is told in a line that names file and row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from games.base import one_line

Row = Mapping[str, str]


def rows(file: Path, columns: tuple[str, ...], what: str) -> Iterator[tuple[str, Row]]:
    """`file:line` and the cells of each row; ValueError where the file, these columns or a cell is missing."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            named = reader.fieldnames or ()
            missing = [column for column in columns if column not in named]
            if missing:
                raise ValueError(f"{file}:1: no column `{missing[0]}`: name {', '.join(columns)} there")
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"{file}:{reader.line_num}: {len(named)} cells are due: quote commas in texts")
                yield f"{file}:{reader.line_num}", row
    except OSError as error:
        raise ValueError(f"{file}: the {what} cannot be read ({error.strerror}): give a CSV file") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: byte {error.start + 1} is no UTF-8: save the file as UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"{file}: no CSV ({error}): quote texts that hold commas or line ends") from None


def number(where: str, row: Row, column: str, most: float) -> float:
    """The number in a cell, from 0 to this one; ValueError where there is none."""
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        shown = one_line(row[column], 40)
        raise ValueError(f"{where}: {column} must be a number from 0 to {most:g}, not '{shown}': mend that cell")
    return value


def line_of(where: str) -> str:
    """The line of a `file:line`."""
    return where.rpartition(":")[2]
