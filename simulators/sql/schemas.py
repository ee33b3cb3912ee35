"""Generated databases of three to six tables. The number of a database determines its schema and rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from simulators.confine.sql import Database, Limits
from simulators.sql.words import COLUMNS, NOUNS, Attribute, Entity, read_domains

ROWS, TERSE_ROWS, DIGITS = (12, 24), 8, 10
"""Range of a table's number of rows (end excluded); number of rows of a terse table, and of its values (0 to 9)."""
TERSE_TABLES, TERSE_COLUMNS = 3, 2
LIMITS = Limits(seconds=2.0, steps=2_000_000, rows=500, characters=100_000)
"""Limits of one query, far above any correct result."""
Cell = str | int | float | None
Rows = frozenset[tuple[Cell, ...]]


class Column(NamedTuple):
    """Column of a table: its name, and the attribute that it stores."""

    name: str
    attribute: Attribute

    @property
    def phrase(self) -> str:
        """Name of the column in questions."""
        return self.attribute.phrase

    @property
    def is_text(self) -> bool:
        """True if the values are texts, False if they are whole numbers."""
        return bool(self.attribute.texts)


class Table(NamedTuple):
    """Table: its name, the noun and plural for a row in questions, its primary key, other columns, and parents.

    `columns` contain no keys. A foreign key has the name of the parent's primary key, so `JOIN … USING (key)` joins a
    table and its parent.
    """

    name: str
    noun: str
    plural: str
    key: str
    columns: tuple[Column, ...]
    parents: tuple[str, ...]


class Schema(NamedTuple):
    """Schema of a database. Parents come before the tables that refer to them."""

    number: int
    terse: bool
    tables: tuple[Table, ...]

    def table(self, name: str) -> Table:
        """Return the table with this name."""
        return next(table for table in self.tables if table.name == name)

    def all_columns(self, table: Table) -> list[str]:
        """Return the names of a table's columns: its primary key, its attributes, and its foreign keys."""
        return [table.key, *(c.name for c in table.columns), *(self.table(parent).key for parent in table.parents)]

    def names(self) -> tuple[str, ...]:
        """Return every column as `table.column`, and every table's name."""
        columns = [f"{table.name}.{column}" for table in self.tables for column in self.all_columns(table)]
        return (*columns, *(table.name for table in self.tables))

    def text(self, names: Collection[str] | None = None) -> str:
        """Return the schema as text for a prompt, or only the tables and columns in `names` if given.

        Each line is a table, with the types and references of its columns. A terse schema is a single line of columns,
        each followed by its table.
        """
        parts = []
        for table in self.tables:
            columns = [c for c in self.all_columns(table) if names is None or f"{table.name}.{c}" in names]
            if names is not None and table.name not in names:
                continue
            if self.terse:
                parts += ["|", *([f"{column} {table.name}" for column in columns] or [table.name])]
            else:
                parts.append(f"{table.name}({', '.join(self._declare_columns(table, columns))})")
        return (" " if self.terse else "\n").join(parts)

    def _declare_columns(self, table: Table, columns: list[str]) -> list[str]:
        types = {column.name: "TEXT" if column.is_text else "INTEGER" for column in table.columns}
        types |= {self.table(parent).key: f"INTEGER REFERENCES {parent}" for parent in table.parents}
        types[table.key] = "INTEGER PRIMARY KEY"
        return [f"{column} {types[column]}" for column in columns]


class World(NamedTuple):
    """Generated database with its schema."""

    schema: Schema
    database: Database

    def rows(self, sql: str) -> Rows:
        """Return the result of a trusted query as a set of rows. For model-written SQL use `run_sql`."""
        return to_result_set(self.database.connection.execute(sql).fetchall())

    def values(self, table: str, column: str) -> list[Cell]:
        """Return a column's values in row order."""
        return [value for (value,) in self.database.connection.execute(f"SELECT {column} FROM {table}")]


def to_result_set(rows: Collection[Collection[Cell]]) -> Rows:
    """Return a result as a set of rows, to compare it: the order of columns counts, row order and duplicates do not.

    Numbers are rounded to six decimals, and 2.0 equals 2.
    """
    return frozenset(tuple(round(cell, 6) if isinstance(cell, float) else cell for cell in row) for row in rows)


def run_sql(terse: bool, index: int, sql: str) -> str:
    """Run model-written SQL read-only on a database and return JSON or `Error: …` (`Database.query`)."""
    return load_world(terse, index).database.query(sql)


def load_world(terse: bool, index: int) -> World:
    """Return the database with this number. The matches of a thread share it, as queries cannot change it."""
    return _WORLDS.build(terse, index)


def _build_world(terse: bool, index: int) -> World:
    rng = np.random.default_rng([index, int(terse)])
    schema = _draw_terse_schema(index, rng) if terse else _draw_schema(index, rng)
    return World(schema, Database(_write_script(schema, rng), LIMITS))


class _Worlds(threading.local):
    """Cache of databases per thread, because a failed query disturbs other threads' queries on the same connection."""

    def __init__(self) -> None:
        self.build = lru_cache(maxsize=128)(_build_world)


_WORLDS = _Worlds()


@cache
def _load_domains() -> dict[str, tuple[Entity, ...]]:
    return read_domains()


def _draw_schema(index: int, rng: np.random.Generator) -> Schema:
    """Draw three to six entities of one domain, including all that they refer to, and names of tables and columns."""
    domains = _load_domains()
    entities = domains[list(domains)[index % len(domains)]]
    by_noun, max_tables = {entity.noun: entity for entity in entities}, int(rng.integers(3, 7))
    chosen: set[str] = set()
    for noun in rng.permutation(list(by_noun)).tolist():
        extended = chosen | _with_parents(noun, by_noun)
        if len(chosen) < 3 or len(extended) <= max_tables:
            chosen = extended
    is_plural = bool(rng.integers(2))
    name = {noun: _make_plural(noun) if is_plural else noun for noun in chosen}
    tables = []
    for entity in entities:
        if entity.noun in chosen:
            count = int(rng.integers(3, len(entity.attributes) + 1))
            picked = sorted(rng.choice(len(entity.attributes), size=count, replace=False).tolist())
            columns = tuple(_draw_column(entity.attributes[n], rng) for n in picked)
            parents, key = tuple(name[parent] for parent in entity.parents), f"{entity.noun}_id"
            tables.append(Table(name[entity.noun], entity.noun, _make_plural(entity.noun), key, columns, parents))
    return Schema(index, False, tuple(tables))


def _with_parents(noun: str, by_noun: dict[str, Entity]) -> set[str]:
    return {noun}.union(*(_with_parents(parent, by_noun) for parent in by_noun[noun].parents))


def _make_plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def _draw_column(attribute: Attribute, rng: np.random.Generator) -> Column:
    return Column(str(rng.choice(attribute.names)), attribute)


def _draw_terse_schema(index: int, rng: np.random.Generator) -> Schema:
    """Draw three tables of two columns each; the second and third each refer to an earlier table."""
    keys = rng.choice(NOUNS.split(), size=TERSE_TABLES, replace=False).tolist()
    columns = rng.choice(COLUMNS.split(), size=TERSE_TABLES * TERSE_COLUMNS, replace=False).tolist()
    tables: list[Table] = []
    for n, key in enumerate(keys):
        numbers = [Attribute(c, (c,), 0, DIGITS - 1, ()) for c in columns[n * TERSE_COLUMNS :][:TERSE_COLUMNS]]
        parents = (tables[int(rng.integers(n))].name,) if n else ()
        attributes = tuple(Column(number.phrase, number) for number in numbers)
        tables.append(Table(f"{key}s", key, f"{key}s", key, attributes, parents))
    return Schema(index, True, tuple(tables))


def _write_script(schema: Schema, rng: np.random.Generator) -> str:
    """Return the SQL that creates the tables and fills them with rows."""
    lines, counts = list[str](), dict[str, int]()
    for table in schema.tables:
        counts[table.name] = TERSE_ROWS if schema.terse else int(rng.integers(*ROWS))
        lines.append(
            f"CREATE TABLE {schema._replace(terse=False).text([table.name, *_list_own_columns(schema, table)])};"
        )
        for key in range(1, counts[table.name] + 1):
            values: list[Cell] = [key, *(_draw_value(column.attribute, rng) for column in table.columns)]
            values += [int(rng.integers(1, counts[parent] + 1)) for parent in table.parents]
            shown = ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in values)
            lines.append(f"INSERT INTO {table.name} VALUES ({shown});")
    return "\n".join(lines)


def _list_own_columns(schema: Schema, table: Table) -> list[str]:
    return [f"{table.name}.{column}" for column in schema.all_columns(table)]


def _draw_value(attribute: Attribute, rng: np.random.Generator) -> Cell:
    if attribute.texts:
        return str(rng.choice(attribute.texts))
    return int(rng.integers(attribute.low, attribute.high + 1))


def read_result(text: str) -> tuple[list[str], list[list[Cell]], bool]:
    """Parse a result of `run_sql`. Returns columns, rows, and whether the rows are complete."""
    found, end = json.JSONDecoder().raw_decode(text)
    return found.get("columns", []), found.get("rows", []), end == len(text)
