"""Reader of a live run's open iteration: each line of the growing file is parsed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from arena.store.lines import LogError
from arena.store.schema import SCHEMA_VERSION
from games.plain_files import open_plain

CHUNK_BYTES = 4 * 10**6
"""Bytes to read at a time. An iteration of 100,000 turns has about a hundred times as many."""
ID_BYTES = 300
"""Bytes at the start of a line that contain its id."""


class Tail:
    """Reader of a growing file of JSON lines. `read_new` returns the next rows, `find_row` a row by its id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[str, tuple[int, int]] = {}
        """Offset and length of each match's line."""
        self._offset, self._file = 0, (0, 0)
        self.has_restarted = self.has_more = False
        """`has_restarted`: the rows read last were the file's first. `has_more`: there are unread rows."""

    def read_new(self) -> list[dict[str, Any]]:
        """Return the rows of the next lines, about `CHUNK_BYTES` in all; [] if the file is gone.

        Starts over if it was replaced. Sets `has_restarted` and `has_more`. Raises LogError for a damaged line.
        """
        try:
            with self._open() as file:
                state = self.path.stat()
                if self._file != (state.st_ino, state.st_dev) or state.st_size < self._offset:
                    self.places, self._offset, self._file = {}, 0, (state.st_ino, state.st_dev)
                self.has_restarted = self._offset == 0
                file.seek(self._offset)
                data = file.read(CHUNK_BYTES) + file.readline()
                self.has_more = file.tell() < state.st_size
        except FileNotFoundError:
            self.has_more = False
            return []
        rows = []
        *lines, _incomplete = data.split(b"\n")
        for line in lines:
            row = self._row(line)
            self.places[str(row["id"])] = (self._offset, len(line))
            self._offset += len(line) + 1
            rows.append(row)
        return rows

    def find_row(self, id: str) -> dict[str, Any] | None:
        """Return the row with this match id, even if `read_new` has not reached it; None if there is none."""
        begin, length = self.places.get(id, (self._offset, 0))
        needle = f'"id":"{id}"'.encode()
        try:
            with self._open() as file:
                file.seek(begin)
                if length:
                    row = self._row(file.read(length))
                    return row if row.get("id") == id else None
                for line in file:
                    if needle in line[:ID_BYTES] and line.endswith(b"\n") and (row := self._row(line)).get("id") == id:
                        return row
        except (FileNotFoundError, LogError):  # sealed in the meantime
            pass
        return None

    def _open(self) -> BinaryIO:
        """Open the file. Raises FileNotFoundError if it is gone, and LogError if it cannot be read."""
        try:
            return open_plain(self.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LogError(f"{self.path} cannot be read: {error.strerror}") from None

    def _row(self, line: bytes) -> dict[str, Any]:
        try:
            row: dict[str, Any] = from_json(line)
            version = row.pop("schema")
            if type(version) is not int or version != SCHEMA_VERSION or "id" not in row:
                raise ValueError
            return row
        except (ValueError, KeyError, AttributeError, TypeError):
            raise LogError(f"{self.path}: a line is damaged: restore the file from a copy") from None
