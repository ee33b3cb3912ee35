"""Structured queries: each generates its SQL, its question in words, and incorrect variants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from simulators.sql.schemas import Cell, Column, Schema, Table

Operator = Literal["=", ">", "<"]
AGGREGATES = {"max": "highest", "min": "lowest", "sum": "total", "avg": "average"}
OTHER_AGGREGATE = {"max": "min", "min": "max", "sum": "avg", "avg": "sum"}
OTHER_OPERATOR: dict[Operator, Operator] = {"=": ">", ">": "<", "<": ">"}
"""Mistaken aggregate and operator of a wrong query, by the right one."""
OPERATOR_WORDS = {"=": "", ">": "above ", "<": "below "}
TIGHT, OPENED = re.compile(r" ([=<>]) |(?<=\w) (\()"), re.compile(r"\((?=[a-z])")
"""Where terse SQL drops or adds a blank, so that a word is the same token everywhere (for tiny models)."""
TERSE_OPERATOR_WORDS = {"=": "", ">": "over ", "<": "less "}


class Condition(NamedTuple):
    """Comparison of a column with a value, or with the column's average if `value` is None."""

    table: Table
    column: Column
    operator: Operator
    value: Cell


@dataclass(frozen=True)
class Query:
    """Structured query. Its methods return its SQL, the question, the names that it uses, and incorrect variants."""

    schema: Schema
    table: Table
    target: Column | None
    """Selected column; None counts rows."""
    aggregate: str = ""
    joined: Table | None = None
    where: tuple[Condition, ...] = ()
    order: tuple[Column, bool] | None = None
    """Column to sort by, of which the row with the highest (True) or lowest value is selected."""
    having: int | None = None
    """Selected rows have more than this number of joined rows."""

    @property
    def key(self) -> str:
        """Name of the column that joins the two tables."""
        assert self.joined
        return self.joined.key if self.joined.name in self.table.parents else self.table.key

    def sql(self) -> str:
        """Return the query as SQL, in lower case and with few blanks if the schema is terse."""
        target = self._write_name(self.table, self.target) if self.target else "*"
        function = self.aggregate if self.target else "count"
        parts = [f"SELECT {f'{function.upper()}({target})' if function else target} FROM {self.table.name}"]
        if self.joined:
            parts.append(f"JOIN {self.joined.name} USING ({self.key})")
        if self.where:
            parts.append("WHERE " + " AND ".join(map(self._write_condition, self.where)))
        if self.having is not None:
            parts.append(f"GROUP BY {self.key} HAVING COUNT(*) > {self.having}")
        if self.order:
            parts.append(f"ORDER BY {self.order[0].name} {'DESC' if self.order[1] else 'ASC'} LIMIT 1")
        sql = " ".join(parts)
        return OPENED.sub("( ", TIGHT.sub(r"\1\2", sql.lower())) if self.schema.terse else sql

    def _write_name(self, table: Table, column: Column) -> str:
        return f"{table.name}.{column.name}" if self.joined and not self.schema.terse else column.name

    def _write_condition(self, condition: Condition) -> str:
        table, column, operator, value = condition
        right = f"'{value}'" if isinstance(value, str) else str(value)
        if value is None:
            right = f"(SELECT AVG({column.name}) FROM {table.name})"
        return f"{self._write_name(table, column)} {operator} {right}"

    def names(self) -> tuple[str, ...]:
        """Return the columns (`table.column`) that the query uses, in the question's order, and then the tables."""
        columns = [(self.table, self.target.name)] if self.target else []
        columns += [(condition.table, condition.column.name) for condition in self.where]
        columns += [(self.table, self.order[0].name)] if self.order else []
        columns += [(self.table, self.key), (self.joined, self.key)] if self.joined else []
        names = [f"{table.name}.{column}" for table, column in columns]
        return tuple(dict.fromkeys([*names, self.table.name, *(table.name for table, _ in columns)]))

    def text(self) -> str:
        """Return the question in words, in few words if the schema is terse."""
        return self._terse_text() if self.schema.terse else self._full_text()

    def _terse_text(self) -> str:
        words = f"{self.aggregate} {self.target.name}".strip() if self.target else f"how {self.table.name}"
        conditions = [
            f"{c.column.name} {TERSE_OPERATOR_WORDS[c.operator]}{'avg' if c.value is None else c.value}"
            for c in self.where
        ]
        if self.order:
            conditions.append(f"{'max' if self.order[1] else 'min'} {self.order[0].name}")
        if self.having is not None and self.joined:
            conditions.append(f"over {self.having} {self.joined.name}")
        return f"{words} with {' and '.join(conditions)}"

    def _full_text(self) -> str:
        noun, plural = self.table.noun, self.table.plural
        target = f"the {self.target.phrase}" if self.target else ""
        conditions = " and ".join(map(self._word_condition, self.where))
        if self.order:
            extreme = "highest" if self.order[1] else "lowest"
            return f"What is {target} of the {noun} with the {extreme} {self.order[0].phrase}?"
        if self.having is not None and self.joined:
            return f"List {target} of every {noun} with at least {self.having + 1} {self.joined.plural}."
        if not self.target:
            return f"How many {plural} are there {conditions}?"
        if self.aggregate:
            return f"What is the {AGGREGATES[self.aggregate]} {self.target.phrase} of the {plural} {conditions}?"
        return f"List {target} of every {noun} {conditions}."

    def _word_condition(self, condition: Condition) -> str:
        table, column, operator, value = condition
        right = f"the average {column.phrase}" if value is None else str(value)
        comparison = f"{column.phrase} {OPERATOR_WORDS[operator]}{right}"
        if table == self.table:
            return f"with {comparison}"
        if table.name in self.table.parents:
            return f"whose {table.noun} has {comparison}"
        return f"that has a {table.noun} with {comparison}"

    def list_wrong_variants(self) -> Iterator[Query]:
        """Yield variants with one mistake: a condition omitted or reversed, another column, aggregate, order, bound."""
        for n, condition in enumerate(self.where):
            yield replace(self, where=self.where[:n] + self.where[n + 1 :])
            reversed_condition = condition._replace(operator=OTHER_OPERATOR[condition.operator])
            yield replace(self, where=(*self.where[:n], reversed_condition, *self.where[n + 1 :]))
        if self.target:
            others = [c for c in self.table.columns if c != self.target and (not self.aggregate or not c.is_text)]
            yield from (replace(self, target=other) for other in others)
        if self.aggregate:
            yield replace(self, aggregate=OTHER_AGGREGATE[self.aggregate])
        if self.order:
            yield replace(self, order=(self.order[0], not self.order[1]))
        if self.having is not None:
            yield replace(self, having=0)
            yield replace(self, having=self.having + 1)

    def list_failing_variants(self) -> Iterator[Query]:
        """Yield variants that may fail with an SQL error: without the join, or with another table or its column."""
        if self.joined:
            yield replace(self, joined=None, having=None)
        for other in self.schema.tables:
            if other not in (self.table, self.joined):
                yield from (replace(self, target=column) for column in other.columns)
                if not self.joined:
                    yield replace(self, table=other)
