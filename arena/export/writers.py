"""Writers of CSV, JSON Lines and Parquet files. Any text, whatever its characters, stays within its row and cell."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from arena.plain import clean_text, to_plain
from arena.store.files import explain_errors

Batches = Iterable[list[dict[str, Any]]]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that a spreadsheet may evaluate as formulas."""


def write_csv(path: Path, schema: Any, batches: Batches) -> tuple[int, int]:
    """Write the rows as a CSV file (RFC 4180, UTF-8) with the schema's names as header.

    Null becomes an empty cell. NUL characters, at which many readers stop, become U+FFFD. Returns the number of rows,
    and of cells that a spreadsheet may evaluate as a formula. Raises StoreError if the file cannot be written.
    """
    rows = formulas = 0

    def cell(value: Any) -> Any:
        nonlocal formulas
        if isinstance(value, str):
            formulas += value.startswith(FORMULA)
            return clean_text(value).replace("\0", "\ufffd")
        return str(value).lower() if isinstance(value, bool) else value

    with explain_errors(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([cell(name) for name in schema.names])
        for batch in batches:
            writer.writerows([cell(row.get(name)) for name in schema.names] for row in batch)
            rows += len(batch)
    return rows, formulas


def write_json_lines(path: Path, schema: Any, batches: Batches) -> int:
    """Write each row as a JSON object on one line. Returns the number of rows.

    The file is ASCII, so that no character in a text can end a line. NaN and infinity become null. Raises StoreError if
    the file cannot be written.
    """
    rows = 0
    with explain_errors(path), path.open("w", encoding="ascii") as file:
        for batch in batches:
            file.writelines(json.dumps(_to_plain_row(row, schema), separators=(",", ":")) + "\n" for row in batch)
            rows += len(batch)
    return rows


def write_parquet(path: Path, schema: Any, batches: Batches) -> int:
    """Write the rows as a Parquet file with one row group per batch. Returns the number of rows.

    NaN and infinity become null. Raises StoreError if the file cannot be written.
    """
    rows = 0
    with explain_errors(path), pq.ParquetWriter(path, schema, compression="zstd") as file:
        for batch in filter(None, batches):
            file.write_table(pa.Table.from_pylist([_to_plain_row(row, schema) for row in batch], schema))
            rows += len(batch)
    return rows


def _to_plain_row(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Return the row with exactly the schema's columns. Missing, NaN and infinite values become None."""
    return {name: to_plain(row.get(name), name, gaps=True) for name in schema.names}
