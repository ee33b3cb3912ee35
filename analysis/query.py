"""SQL queries over the tables of runs with DuckDB, without access to files, network or process.

The tables are those of `frames`. A column with a dot in its name needs double quotes: "report.deal".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from analysis.columns import TABLES
from analysis.frames import Frames, load
from arena.errors import ConfigError
from arena.plain import printable
from arena.store.sealed_sql import SECONDS, SETTINGS, parse_select, run_sealed
from games.names import nearest

_DOTTED = re.compile(r"""Referenced table "(.*?)" not found|Cannot extract field .* from expression "(.*?)" because""")


def sql(runs: Frames | str | Path | Sequence[str | Path], query: str) -> pd.DataFrame:
    """Answer one SELECT over the tables of one or several runs, as a pandas frame with Arrow types.

    Raises ConfigError, with the nearest name, for an invalid query, and StoreError as `load` does.

    >>> sql("runs/latest", "select role, avg(advantage) as mean from turns group by role order by role").values.tolist()
    [['the_opener', 0.125], ['the_responder', 0.125]]
    """
    log = runs if isinstance(runs, Frames) else load(runs)
    frame: pd.DataFrame = run_query(log, query).to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def run_query(log: Frames, query: str, seconds: float = SECONDS) -> Any:
    """Answer one SELECT over the tables of `log`, as an Arrow table, without access to files or network.

    Raises ConfigError for an invalid query, and if it takes longer than `seconds` or more than half of the memory.

    >>> run_query(log, "select count(*) as matches from matches").to_pylist()
    [{'matches': 12}]
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigError("SQL needs DuckDB: pip install 'arena-selfplay[analysis]'") from None
    with duckdb.connect(":memory:", config=SETTINGS) as database:
        tree = parse_select(database, query)
        for name, columns in _find_columns(tree).items():
            database.register(name, log.select_existing(name, columns))
        database.execute("set lock_configuration = true").fetchall()
        try:
            return _to_plain_types(run_sealed(database, query, seconds))
        except duckdb.OutOfMemoryException:
            raise ConfigError("the query needs more than half of this machine's memory: ask for less") from None
        except duckdb.Error as error:
            raise ConfigError(_explain_error(str(error), log, tree)) from None


def _to_plain_types(table: Any) -> Any:
    """Convert an Arrow table's decimals to integers or floats, and timestamps with a time zone to UTC."""
    return pa.Table.from_arrays([_convert_column(column) for column in table.columns], table.column_names)


def _convert_column(column: Any) -> Any:
    """Convert a column's decimals: without decimal places to integers, or to floats if a value exceeds 64 bits."""
    try:
        return column.cast(_to_plain_type(column.type, pa.int64()))
    except pa.ArrowInvalid:
        return column.cast(_to_plain_type(column.type, pa.float64()), safe=False)


def _to_plain_type(kind: Any, integer_type: Any) -> Any:
    if pa.types.is_decimal(kind):
        return pa.float64() if kind.scale else integer_type
    if pa.types.is_list(kind):
        return pa.list_(_to_plain_type(kind.value_type, integer_type))
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _find_columns(tree: Any) -> dict[str, set[str] | None]:
    """Return the columns that a query may read, by table; None for all columns of a table.

    Every identifier in the query counts as a possible column name: reading too many columns is harmless. All columns
    are read if the query names columns by position or reads a table through a function.
    """
    nodes = list(_walk(tree))
    words = {word.casefold() for node in nodes for value in node.values() for word in _list_texts(value)}
    table_names = {str(node.get("alias") or node["table_name"]).casefold() for node in nodes if node.get("table_name")}
    row_names = {node["column_names"][0].casefold() for node in nodes if len(node.get("column_names") or ()) == 1}
    kinds = {node.get("type") for node in nodes} | {node.get("ref_type") for node in nodes}
    renames_columns = any(node.get("table_name") and node.get("column_name_alias") for node in nodes)
    reads_all = (
        renames_columns
        or table_names & row_names
        or kinds & {"STAR", "NATURAL", "SHOW_REF", "TABLE_FUNCTION", "POSITIONAL_REFERENCE"}
    )
    tables_read = {str(node["table_name"]).casefold() for node in nodes if node.get("table_name")}
    tables = [name for name in TABLES if name in (words if "TABLE_FUNCTION" in kinds else tables_read)]
    return {name: None if reads_all else _match_columns(name, words) for name in tables}


def _match_columns(table: str, words: set[str]) -> set[str]:
    """Return the query's lower-case identifiers that are columns of the table or contain a dot."""
    return {field.name for field in TABLES[table] if field.name in words} | {word for word in words if "." in word}


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
        stack += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _list_texts(value: Any) -> list[str]:
    return [word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]


def _explain_error(error: str, log: Frames, tree: Any) -> str:
    """Return DuckDB's error as one line, with the nearest existing name for an unknown table or column."""
    if column := re.search(r'Referenced column "(.*?)" not found', error):
        columns = {
            name
            for table in _find_columns(tree)
            for name in log.select_existing(table, ["report.", "reward.", *TABLES[table].names]).column_names
        }
        tables = ", ".join(_find_columns(tree))
        return f"there is no column '{printable(column[1])}'{nearest(column[1], map(printable, columns))} in {tables}"
    if table := re.search(r"Table with name (.*?) does not exist", error):
        return f"there is no table '{printable(table[1])}'{nearest(table[1], TABLES)} (tables: {', '.join(TABLES)})"
    if (dotted := _DOTTED.search(error)) and (prefix := dotted[1] or dotted[2]):
        return f'a column name with a dot needs double quotes: "{printable(prefix)}.…"'
    return printable(error.partition("\n\nLINE")[0])
