"""The commands that the analysis adds to `arena` (pyproject's entry points): thin, and light until they are called."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena.cli.console import PlainConsole
from arena.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 200
"""Rows that a table in the terminal has at most."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as runs/latest.", show_default=False)
]


def sql(
    runs: Runs,
    query: Annotated[str, typer.Argument(help="One SELECT, in quotes.", show_default=False)],
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, all rows.")] = False,
) -> None:
    """Ask runs in SQL: tables runs, iterations, matches, seats, turns, messages, tokens (docs/analysis.md).

    A column with a dot stands in double quotes: "report.deal". The query sees these runs and nothing else.

    Example: arena sql runs/latest "select role, avg(advantage) from turns group by role"
    """
    from analysis.frames import load
    from analysis.query import answer

    if as_json and as_csv:
        raise ConfigError("--json and --csv: give one of them")
    table = answer(load(runs), query)
    rows = (dict(zip(table.column_names, values, strict=True)) for values in _rows(table))
    if as_json:
        print(json.dumps([{name: _plain(value) for name, value in row.items()} for row in rows]))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(_cell, table.column_names))
        writer.writerows(map(_cell, values) for values in _rows(table))
    else:
        _show(table)


def _rows(table: Any) -> Iterable[tuple[Any, ...]]:
    """Row by row; by place, as two columns may have one name."""
    return (
        values for batch in table.to_batches() for values in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    )


def _show(table: Any) -> None:
    """As many rows as one can read, and how many there are besides."""
    from rich.table import Table
    from rich.text import Text

    from arena.plain import printable

    console, grid = PlainConsole(), Table(box=None, pad_edge=False, header_style="bold")
    for field in table.schema:
        number = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
        grid.add_column(Text(printable(field.name)), justify="right" if number else "left", overflow="fold")
    for values in _rows(table.slice(0, SHOWN)):
        grid.add_row(*(Text(printable(_read(value))) for value in values))
    console.print(grid)
    if len(table) > SHOWN:
        console.print(Text(f"… and {len(table) - SHOWN} rows more: ask for fewer, or add --csv", style="dim"))


def _read(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _cell(value: Any) -> Any:
    """A value as CSV has it, where somebody looks without what could steer the terminal."""
    from arena.plain import printable

    return printable(value) if isinstance(value, str) and sys.stdout.isatty() else value


def _plain(value: Any) -> Any:
    """A value as JSON has it: what it has no number for is null, what it has no kind for is text."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
