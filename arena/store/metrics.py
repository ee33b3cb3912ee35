"""The run's figures: one JSON line per iteration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.plain import plain
from arena.store.files import explained, write_atomic
from arena.store.lines import LineWriter, to_line
from arena.store.reader import read_metrics
from games.plain_files import read_plain


class MetricsLog:
    """`metrics.jsonl`: rows with an `iteration`, kept on the disk as they come."""

    def __init__(self, path: Path) -> None:
        """The file need not exist yet."""
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Keep one iteration's figures (nested tables allowed; NaN and infinities become null)."""
        if not isinstance(row.get("iteration"), int):
            raise ValueError("a row of metrics needs its iteration, a whole number")
        with LineWriter(self.path) as writer:
            writer.append(plain(row, "metrics", gaps=True))

    def read(self) -> list[dict[str, Any]]:
        """Read all rows, oldest first; a torn last line is left out; LogError for a damaged one."""
        return read_metrics(self.path)

    def discard_after(self, iteration: int, size: int | None = None) -> None:
        """Drop the rows of later iterations: what comes after so many bytes, where that is known."""
        if size is not None and self.path.exists():
            with explained(self.path, "reading"):
                data = read_plain(self.path)
            if len(data) > size:
                write_atomic(self.path, data[:size])
            return
        rows = self.read()
        kept = [row for row in rows if row["iteration"] <= iteration]
        if len(kept) < len(rows):
            write_atomic(self.path, "".join(f"{to_line(row)}\n" for row in kept))
