"""Formats of the three seats' acts, and of query results as observations.

writer:   <sql>SELECT …</sql> or query(sql="…") runs a query, <solution>SELECT …</solution> is final; terse: ?sql, =sql
grounder: <schema>table.column, table</schema>; terse: each column followed by its table
judge:    yes or no; the first of these words counts
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from games.base import IllegalAct, to_one_line
from simulators.sql.schemas import Cell, Rows, Schema, read_result, to_result_set
from simulators.tools import read_calls

OBSERVATION, SHOWN_ROWS, CELL = 2_000, 10, 200
"""Maximum characters of an observation, number of rows shown of a longer result, and maximum characters of a cell."""
REASONING = 1_000
"""Maximum number of characters of reasoning that the judge reads."""
MAX_NAMES = 200
THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL | re.IGNORECASE)
BLOCK = re.compile(r"<(sql|solution)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```(?:sql)?(.*)```", re.DOTALL | re.IGNORECASE)
"""Markdown fence around a stripped statement."""
NAMED = re.compile(r"<schema>(.*?)</schema>", re.DOTALL | re.IGNORECASE)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?")
VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
NO_COLUMN = re.compile(r"no such (?:column|table): (\S+)")
WRITER_USAGE = "write one query in <sql>…</sql>, or the final one in <solution>…</solution>"
GROUNDER_USAGE = "name tables and columns of the schema in <schema>…</schema>, such as table.column"
TERSE_WRITER_USAGE, TERSE_GROUNDER_USAGE = "?sql or =sql", "name tables and columns"


class WriterAct(NamedTuple):
    """Parsed act of the writer: a query or the solution, and the reasoning around it."""

    kind: Literal["query", "solution"]
    sql: str
    reasoning: str


def read_sql(act: str, terse: bool) -> WriterAct:
    """Parse a writer's act. Raises IllegalAct unless it contains exactly one query or solution."""
    if terse:
        kind, sql = act.strip()[:1], act.strip()[1:].strip()
        if kind not in ("?", "=") or not sql:
            raise IllegalAct(TERSE_WRITER_USAGE)
        return WriterAct("query" if kind == "?" else "solution", sql, "")
    rest = THOUGHT.sub(" ", act)
    thoughts = " ".join(THOUGHT.findall(act))
    blocks = BLOCK.findall(rest)
    if len(blocks) == 1:
        tag, sql = blocks[0]
        fenced = FENCE.fullmatch(sql.strip())
        sql = (fenced[1] if fenced else sql).strip()
        reasoning = to_one_line(f"{thoughts} {BLOCK.sub(' ', rest)}", REASONING)
        if sql:
            return WriterAct("query" if tag.lower() == "sql" else "solution", sql, reasoning)
    elif not blocks:
        calls = read_calls(rest, limit=2)
        argument = calls[0].arguments.get("sql") if len(calls) == 1 and calls[0].name == "query" else None
        if isinstance(argument, str) and argument.strip():
            return WriterAct("query", argument.strip(), to_one_line(thoughts, REASONING))
    raise IllegalAct(WRITER_USAGE)


def write_sql(sql: str, terse: bool, final: bool) -> str:
    """Format a query or, if `final`, the solution as a writer's act; `terse` selects the short format."""
    if terse:
        return f"{'=' if final else '?'}{sql}"
    tag = "solution" if final else "sql"
    return f"<{tag}>{sql}</{tag}>"


def read_names(act: str, schema: Schema) -> tuple[frozenset[str], int]:
    """Parse a grounder's act. Returns the known names in it and the number of unknown ones.

    A column also adds its table. Raises IllegalAct if no name is in the schema.
    """
    if schema.terse:
        named, unknown = _read_terse_names(act, schema)
    else:
        blocks = NAMED.findall(THOUGHT.sub(" ", act))
        if len(blocks) != 1:
            raise IllegalAct(GROUNDER_USAGE)
        names = {name.lower() for name in NAME.findall(blocks[0])[:MAX_NAMES]}
        named, unknown = names & {*schema.names()}, len(names - {*schema.names()})
    if not named:
        raise IllegalAct(TERSE_GROUNDER_USAGE if schema.terse else GROUNDER_USAGE)
    return frozenset(named | {name.partition(".")[0] for name in named}), unknown


def _read_terse_names(act: str, schema: Schema) -> tuple[set[str], int]:
    tables, names = {table.name for table in schema.tables}, {*schema.names()}
    named, unknown, column = set[str](), set[str](), ""
    for word in [*act.replace("|", " ").split()[:MAX_NAMES], ""]:
        if word in tables:
            name, column = f"{word}.{column}" if column else word, ""
        else:
            name, column = column, word
        if name:
            (named if name in names else unknown).add(name)
    return named, len(unknown)


def write_names(names: Sequence[str], terse: bool) -> str:
    """Format names of the schema as a grounder's act, in order, without tables that a column implies."""
    implied = {name.partition(".")[0] for name in names if "." in name}
    words = [name for name in names if name not in implied]
    if terse:
        return " ".join(["|", *(" ".join(reversed(word.split("."))) for word in words)])
    return f"<schema>{', '.join(words)}</schema>"


def read_verdict(act: str) -> bool:
    """Parse a judge's act; True means yes. Raises IllegalAct if it contains neither yes nor no."""
    verdict = VERDICT.search(THOUGHT.sub(" ", act))
    if not verdict:
        raise IllegalAct("yes or no")
    return verdict[1].lower() == "yes"


class Result(NamedTuple):
    """Result of a query: the observation, and the set of rows (None if the query failed or has too many rows)."""

    text: str
    rows: Rows | None


def make_result(text: str, terse: bool) -> Result:
    """Convert the text that `run_sql` returned to an observation and a set of rows."""
    if text.startswith("Error"):
        missing = NO_COLUMN.search(text)
        if terse:
            return Result(f"bad {to_one_line(missing[1], CELL)}" if missing else "bad", None)
        return Result(to_one_line(text, OBSERVATION), None)
    columns, rows, is_complete = read_result(text)
    if terse:
        cells = ", ".join(" ".join(map(_format_cell, row)) for row in rows[:SHOWN_ROWS])
        cells = cells if len(columns) > 1 else cells.replace(",", "")
        return Result(to_one_line(cells, OBSERVATION) or "none", to_result_set(rows) if is_complete else None)
    return Result(_format_table(columns, rows, is_complete), to_result_set(rows) if is_complete else None)


def _format_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], is_complete: bool) -> str:
    """Return a result as lines of cells. A result of over 2,000 characters or too many rows is cut to ten rows."""
    lines = [" | ".join(map(_format_cell, columns)), *(" | ".join(map(_format_cell, row)) for row in rows)]
    if len("\n".join(lines)) > OBSERVATION or not is_complete:
        count = f"{len(rows):,}" if is_complete else f"over {len(rows):,}"
        lines = [*lines[: SHOWN_ROWS + 1], f"({SHOWN_ROWS} of {count} rows)"]
    elif not rows:
        lines.append("(no rows)")
    text = "\n".join(lines)
    return text if len(text) <= OBSERVATION else f"{text[: OBSERVATION - 1]}…"


def _format_cell(cell: Cell) -> str:
    return "NULL" if cell is None else to_one_line(str(cell), CELL)
