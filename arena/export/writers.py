"""Files of rows, written as they come: CSV, JSON lines, Parquet. Whatever text a row holds, it stays one row."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from arena.plain import clean_text, plain
from arena.store.files import explained

Batches = Iterable[list[dict[str, Any]]]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that a spreadsheet may take for a formula."""


class Writer(Protocol):
    """Writes batches of rows, all with the columns of the schema, to a new file; returns how many rows."""

    suffix: str

    def __call__(self, path: Path, schema: Any, batches: Batches) -> int: ...


class Csv:
    """RFC 4180 in UTF-8; NUL, at which many readers stop, becomes U+FFFD."""

    suffix = "csv"

    def __init__(self) -> None:
        self.formulas = 0
        """Cells of text that a spreadsheet may take for a formula."""

    def __call__(self, path: Path, schema: Any, batches: Batches) -> int:
        """Write a head, then the rows; null is an empty cell."""
        count = 0
        with explained(path), path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow([self._cell(name) for name in schema.names])
            for batch in batches:
                lines.writerows([self._cell(row.get(name)) for name in schema.names] for row in batch)
                count += len(batch)
        return count

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str):
            self.formulas += value.startswith(FORMULA)
            return clean_text(value).replace("\0", "\ufffd")
        return str(value).lower() if isinstance(value, bool) else value


class JsonLines:
    """One object a line, in pure ASCII: no text can end its line early."""

    suffix = "jsonl"

    def __call__(self, path: Path, schema: Any, batches: Batches) -> int:
        """Write the rows."""
        count = 0
        with explained(path), path.open("w", encoding="ascii") as file:
            for batch in batches:
                for row in batch:
                    file.write(json.dumps(_row(row, schema), separators=(",", ":")) + "\n")
                count += len(batch)
        return count


class Parquet:
    """Parquet with the schema's types; a group of rows for each iteration."""

    suffix = "parquet"

    def __call__(self, path: Path, schema: Any, batches: Batches) -> int:
        """Write the rows."""
        count = 0
        with explained(path), pq.ParquetWriter(path, schema, compression="zstd") as file:
            for batch in batches:
                if batch:
                    file.write_table(pa.Table.from_pylist([_row(row, schema) for row in batch], schema))
                count += len(batch)
        return count


def _row(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    """The schema's columns of a row as plain values; numbers that are not finite become null."""
    return {name: plain(row.get(name), name, gaps=True) for name in schema.names}
