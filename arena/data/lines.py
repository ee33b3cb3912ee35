"""Rows of a JSON Lines file by number, with memory for their offsets only."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arena.errors import ConfigError, StoreError
from arena.store.files import explain_errors
from games.plain_files import open_plain
from games.untrusted_json import DECODER

LONGEST_LINE = 8 << 20
"""Maximum bytes of a line."""
MOST_ROWS = 50_000_000
CHUNK = 1 << 20


class LineFile:
    """A JSON Lines file, one object per line, of which any row can be read.

    Opening it hashes the file and indexes its lines: 8 bytes of memory per row. The file stays open, and a row raises
    StoreError once the file was changed in place.
    """

    def __init__(self, path: Path) -> None:
        """Index the file. Raises ConfigError for a line beyond `LONGEST_LINE`, an empty line or an empty file.

        Raises StoreError if it cannot be read or is no regular file.
        """
        self.path = path
        with explain_errors(path, "reading"):
            self._file = open_plain(path)
            self._state = self._stamp()
            ends, self.sha256 = self._index()
        self._ends = ends
        """[rows] int64, the offset after each row's line, without the line break."""
        if not len(self._ends):
            raise ConfigError(f"{path}: it has no rows")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ends)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return a row, from 0. Raises ConfigError, with file and line, unless it is a JSON object without NaN.

        Raises StoreError if the file was changed since it was opened.
        """
        start = int(self._ends[number - 1]) + 1 if number else 0
        with explain_errors(self.path, "reading"):
            line = os.pread(self._file.fileno(), int(self._ends[number]) - start, start)
            if self._stamp() != self._state:
                raise StoreError(f"{self.path} was changed while it is read: restore it, then resume")
        try:
            row = DECODER.decode(line.decode("utf-8-sig" if number == 0 else "utf-8"))
        except RecursionError:
            raise ConfigError(f"{self.place(number)}: nested too deep") from None
        except ValueError as error:
            raise ConfigError(f"{self.place(number)}: not JSON: {str(error)[:200]}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{self.place(number)}: expected an object, got {type(row).__name__}")
        return row

    def place(self, number: int) -> str:
        """Return a row's file and line, for messages."""
        return f"{self.path}:{number + 1}"

    def close(self) -> None:
        """Close the file. Further calls do nothing."""
        self._file.close()

    def _stamp(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns

    def _index(self) -> tuple[np.ndarray, str]:
        """Return the offset after each line, without its break, and the file's SHA-256 in hex."""
        digest, parts, begun, rows = hashlib.sha256(), list[np.ndarray](), 0, 0
        for offset, chunk in self._chunks():
            digest.update(chunk)
            breaks = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10) + offset
            starts = np.concatenate([[begun], breaks[:-1] + 1]) if len(breaks) else breaks
            if (long := np.flatnonzero(breaks - starts > LONGEST_LINE)).size:
                raise self._too_long(rows + int(long[0]))
            rows += len(breaks)
            if rows > MOST_ROWS:
                raise ConfigError(f"{self.path}: more than {MOST_ROWS:,} rows")
            begun = int(breaks[-1]) + 1 if len(breaks) else begun
            if offset + len(chunk) - begun > LONGEST_LINE:
                raise self._too_long(rows)
            parts.append(breaks)
        size = self._state[0]
        ends = np.concatenate([*parts, [size] if begun < size else []]).astype(np.int64)
        return self._without_blank_end(ends), digest.hexdigest()

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        offset = 0
        while chunk := os.pread(self._file.fileno(), CHUNK, offset):
            yield offset, chunk
            offset += len(chunk)

    def _without_blank_end(self, ends: np.ndarray) -> np.ndarray:
        """Return the offsets without empty lines at the file's end. Raises ConfigError for an empty line before."""
        lengths = np.diff(ends, prepend=-1) - 1
        kept = len(ends)
        while kept and lengths[kept - 1] == 0:
            kept -= 1
        if (blank := np.flatnonzero(lengths[:kept] == 0)).size:
            raise ConfigError(f"{self.place(int(blank[0]))}: an empty line")
        return ends[:kept].copy()

    def _too_long(self, number: int) -> ConfigError:
        return ConfigError(f"{self.place(number)}: a line of more than {LONGEST_LINE >> 20} MB")
