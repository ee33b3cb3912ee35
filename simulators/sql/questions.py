"""Questions of four levels, with the query that answers them and wrong queries."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from simulators.base import SimulatorFault
from simulators.sql.queries import AGGREGATES, Condition, Operator, Query
from simulators.sql.schemas import Column, Rows, Table, World

LEVELS = (1, 2, 3, 4)
"""1: rows with a condition; 2: an aggregate or an extreme; 3: a join; 4: a join with an aggregate, groups, nesting."""
TRIES = 400
"""Maximum number of queries drawn for one question."""


class Question(NamedTuple):
    """Question with its level, the true query, and that query's result as a set of rows.

    `names` are the tables and columns of the true query. `wrong` are queries with one mistake, whose results differ.
    `failing` are queries that give errors.
    """

    level: int
    text: str
    sql: str
    rows: Rows
    names: tuple[str, ...]
    wrong: tuple[str, ...]
    failing: tuple[str, ...]


def draw_question(world: World, level: int, rng: np.random.Generator) -> Question:
    """Draw a question of this level whose result is not empty and differs from that of every wrong variant.

    Raises SimulatorFault after 400 tries.
    """
    for _ in range(TRIES):
        query = _draw_query(world, level, rng)
        question = _make_question(world, level, query) if query else None
        if question:
            return question
    raise SimulatorFault(f"sql: no question of level {level} in {TRIES} tries, database {world.schema.number}")


def _make_question(world: World, level: int, query: Query) -> Question | None:
    """Return the question of a query, or None if its result is empty, ambiguous or that of a wrong variant."""
    rows = world.rows(query.sql())
    if rows <= {(None,), (0,)}:
        return None
    wrong = tuple(dict.fromkeys(other.sql() for other in query.list_wrong_variants()))
    if any(world.rows(sql) == rows for sql in wrong):
        return None  # a wrong query would count as right
    if query.order and _is_tied(world.values(query.table.name, query.order[0].name), highest=query.order[1]):
        return None
    failing = tuple(sql for sql in (other.sql() for other in query.list_failing_variants()) if _fails(world, sql))
    return Question(level, query.text(), query.sql(), rows, query.names(), wrong, failing)


def _is_tied(values: list[Any], highest: bool) -> bool:
    return values.count(max(values) if highest else min(values)) > 1


def _fails(world: World, sql: str) -> bool:
    try:
        world.database.connection.execute(sql).fetchone()
    except sqlite3.Error:
        return True
    return False


def _draw_query(world: World, level: int, rng: np.random.Generator) -> Query | None:
    """Draw a query of this level. Returns None if the drawn table or column does not allow one."""
    schema = world.schema
    table = schema.tables[int(rng.integers(len(schema.tables)))]
    target, other = (table.columns[int(n)] for n in rng.choice(len(table.columns), size=2, replace=False))
    plain = Query(schema, table, target)
    kind = int(rng.integers(3))
    if level == 1:
        thirds = [c for c in table.columns if c not in (target, other)] if kind == 2 else []
        return replace(plain, where=tuple(_draw_condition(world, table, c, rng) for c in (other, *thirds[:1])))
    if level == 2 and kind == 2:
        return None if other.is_text else replace(plain, order=(other, bool(rng.integers(2))))
    if level == 2 or (level == 4 and kind == 2):
        if level == 4:
            average = Condition(table, other, _draw_operator(rng, True), None)
            return None if other.is_text else replace(plain, where=(average,))
        counted = replace(plain, where=(_draw_condition(world, table, other, rng),))
        return replace(counted, target=None) if kind else _aggregate(counted, rng)
    pairs = [(child, schema.table(parent)) for child in schema.tables for parent in child.parents]
    child, parent = pairs[int(rng.integers(len(pairs)))]
    if level == 4 and kind == 1:
        return replace(
            plain, table=parent, target=_draw_column(parent, rng), joined=child, having=int(rng.integers(1, 4))
        )
    main, side = (parent, child) if level == 3 and kind == 2 else (child, parent)
    joined = replace(plain, table=main, target=_draw_column(main, rng), joined=side)
    joined = replace(joined, where=(_draw_condition(world, side, _draw_column(side, rng), rng),))
    return joined if level == 3 else _aggregate(joined, rng)


def _aggregate(query: Query, rng: np.random.Generator) -> Query | None:
    if query.target and query.target.is_text:
        return None
    return replace(query, aggregate=str(rng.choice(list(AGGREGATES))))


def _draw_column(table: Table, rng: np.random.Generator) -> Column:
    return table.columns[int(rng.integers(len(table.columns)))]


def _draw_operator(rng: np.random.Generator, ordered: bool) -> Operator:
    operators: list[Any] = [">", "<"] if ordered else ["=", ">", "<"]
    return operators[int(rng.integers(len(operators)))]  # type: ignore[no-any-return]


def _draw_condition(world: World, table: Table, column: Column, rng: np.random.Generator) -> Condition:
    """Draw a condition on a column, with one of the column's values."""
    values = world.values(table.name, column.name)
    value = values[int(rng.integers(len(values)))]
    return Condition(table, column, "=" if column.is_text else _draw_operator(rng, False), value)
