"""The open iteration of a live run: matches as they end, each line read once, from its place in the file again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_core import from_json

from arena.store.lines import LogError
from arena.store.older import row_brought_up
from arena.store.schema import SCHEMA_VERSION


class Tail:
    """Rows of a file of JSON lines that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[str, tuple[int, int]] = {}
        """By match, where its line begins and how long it is."""
        self._read, self._file = 0, (0, 0)

    def new(self) -> list[dict[str, Any]]:
        """Rows of the lines that came since; [] where the file is gone. From the beginning in another file's place."""
        try:
            with self.path.open("rb") as file:
                state = self.path.stat()
                if self._file != (state.st_ino, state.st_dev) or state.st_size < self._read:
                    self.places, self._read, self._file = {}, 0, (state.st_ino, state.st_dev)
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        rows = []
        *lines, _torn = data.split(b"\n")
        for line in lines:
            row = self._row(line)
            self.places[str(row["id"])] = (self._read, len(line))
            self._read += len(line) + 1
            rows.append(row)
        return rows

    def match(self, id: str) -> dict[str, Any] | None:
        """The row of a match that was read, None where there is none."""
        if id not in self.places:
            return None
        begin, length = self.places[id]
        try:
            with self.path.open("rb") as file:
                file.seek(begin)
                row = self._row(file.read(length))
        except (FileNotFoundError, LogError):  # sealed meanwhile
            return None
        return row if row.get("id") == id else None

    def _row(self, line: bytes) -> dict[str, Any]:
        try:
            row = from_json(line)
            version = row.pop("schema")
            if type(version) is not int or not 1 <= version <= SCHEMA_VERSION or "id" not in row:
                raise ValueError
            return row_brought_up(row, version)
        except (ValueError, KeyError, AttributeError, TypeError):
            raise LogError(f"{self.path}: a line is damaged: restore the file from a copy") from None
