"""Generated tables, as CSV, JSON or SQL."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Value = str | int | float
Kind = Literal["csv", "json", "sqlite"]
KINDS: tuple[Kind, ...] = ("csv", "json", "sqlite")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "city": ("Oslo", "Turin", "Lyon", "Porto", "Ghent"), "product": ("lamp", "desk", "chair", "shelf", "rug"),
    "team": ("amber", "cobalt", "ivory", "jade", "scarlet"), "channel": ("web", "shop", "phone", "partner", "fair"),
    "crop": ("barley", "maize", "oats", "rye", "wheat"), "species": ("finch", "heron", "kite", "lark", "swift"),
}  # fmt: skip
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "region": ("north", "south"), "tier": ("gold", "silver"), "size": ("small", "large"), "owner": ("Kim", "Lee"),
}  # fmt: skip
NUMBERS = ("price", "units", "weight", "minutes", "score", "cost", "length", "visits")
TABLES = ("orders", "records", "samples", "entries", "events")
START = datetime.date(2024, 1, 1)
TERSE_VALUES = tuple("abcde")


@dataclass(frozen=True)
class Table:
    """Table with its name, columns and rows."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def values(self, column: str) -> list[Value]:
        """Return a column's values."""
        index = self.columns.index(column)
        return [row[index] for row in self.rows]

    def to_dicts(self) -> list[dict[str, Value]]:
        """Return the rows as dicts by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Data:
    """Tables of a match: the main table with the kinds of its columns, and a side table to join, if any."""

    main: Table
    groups: tuple[str, ...]
    """Categorical columns."""
    numbers: tuple[str, ...]
    date: str = ""
    """Column of dates (ISO texts) or years; "" if there is none."""
    side: Table | None = None
    """Table with one row per value of the first categorical column: that value, and an attribute."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables."""
        return (self.main,) if self.side is None else (self.main, self.side)

    def to_sql(self) -> str:
        """Return the SQL that creates and fills the tables."""
        return "\n".join(line for table in self.tables for line in _write_statements(table))

    def to_files(self, kind: Kind) -> dict[str, str]:
        """Return the tables as CSV or JSON texts by file name; {} for a database."""
        if kind == "sqlite":
            return {}
        return {
            f"{table.name}.{kind}": _to_csv(table) if kind == "csv" else json.dumps(table.to_dicts())
            for table in self.tables
        }


def draw_tables(identity: int, terse: bool) -> Data:
    """Generate the tables that the integer `identity` determines.

    With `terse`, they have five to eight rows, no dates, and names and texts of one letter.
    """
    rng = np.random.default_rng([identity, terse])
    names = list("gh") if terse else [str(name) for name in rng.permutation(list(GROUPS))[:2]]
    numbers = tuple(str(name) for name in rng.permutation(list("xyz") if terse else list(NUMBERS))[:2])
    values = {name: TERSE_VALUES[:3] if terse else tuple(rng.permutation(GROUPS[name])[:4].tolist()) for name in names}
    count = int(rng.integers(5, 9) if terse else rng.integers(20, 61))
    columns = [[values[name][int(rng.integers(len(values[name])))] for _ in range(count)] for name in names]
    columns += [_draw_numbers(rng, count, terse, is_integer=bool(index)) for index in range(2)]
    date = "" if terse else "day"
    if date:
        columns.append([(START + datetime.timedelta(days=int(n))).isoformat() for n in rng.integers(0, 150, count)])
    name = "t" if terse else str(rng.choice(TABLES))
    main = Table(name, (*names, *numbers, *([date] if date else [])), tuple(zip(*columns, strict=True)))
    attribute = "k" if terse else str(rng.choice(list(ATTRIBUTES)))
    labels = ("m", "n") if terse else ATTRIBUTES[attribute]
    # Both labels occur, so that a condition on the attribute always excludes some rows of the side table.
    drawn = [*labels, *(str(rng.choice(labels)) for _ in values[names[0]][2:])]
    rows = tuple(zip(values[names[0]], (drawn[int(n)] for n in rng.permutation(len(drawn))), strict=True))
    side = Table("s" if terse else f"{names[0]}_list", (names[0], attribute), rows)
    return Data(main, tuple(names), numbers, date, side)


def _draw_numbers(rng: np.random.Generator, count: int, terse: bool, is_integer: bool) -> list[Value]:
    if terse:
        return [int(number) for number in rng.permutation(np.arange(1, 10))[:count]]
    if is_integer:
        return [int(number) for number in rng.integers(1, 100, count)]
    return [round(float(number), 2) for number in rng.gamma(4.0, 12.0, count)]


def _to_csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    return text.getvalue()


def _write_statements(table: Table) -> Iterator[str]:
    columns = ", ".join(f"{name} {_name_type(table.values(name))}" for name in table.columns)
    yield f"CREATE TABLE {table.name} ({columns});"
    for row in table.rows:
        yield f"INSERT INTO {table.name} VALUES ({', '.join(map(to_literal, row))});"


def _name_type(values: Sequence[Value]) -> str:
    return "TEXT" if isinstance(values[0], str) else "REAL" if isinstance(values[0], float) else "INTEGER"


def to_literal(value: Value) -> str:
    """Return a value as an SQL literal."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
