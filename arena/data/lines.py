"""Random access to the rows of a JSON Lines file, of which only the lines' offsets are kept in memory."""

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

MAX_LINE_BYTES = 8 << 20
"""Maximum bytes of a line."""
MAX_ROWS = 50_000_000
CHUNK = 1 << 20


class LineFile:
    """Rows of a JSON Lines file, which has one object per line.

    Opening it hashes the file and indexes its lines, with 8 bytes of memory per row. The file stays open. Reading a row
    raises StoreError once the file was changed in place.
    """

    def __init__(self, path: Path) -> None:
        """Index the file. Raises ConfigError for a line beyond `MAX_LINE_BYTES`, an empty line or an empty file.

        Raises StoreError if the file cannot be read or is not a regular file.
        """
        self.path = path
        with explain_errors(path, "reading"):
            self._file = open_plain(path)
            self._stamp = self._read_stamp()
            ends, self.sha256 = self._index()
        self._ends = ends
        """Offset of the end of each row's line, before the line break: [rows] int64."""
        if not len(self._ends):
            raise ConfigError(f"{path}: it has no rows")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._ends)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return row `number`, from 0. Raises ConfigError, with file and line, unless it is a JSON object without NaN.

        Raises StoreError if the file was changed since it was opened.
        """
        start = int(self._ends[number - 1]) + 1 if number else 0
        with explain_errors(self.path, "reading"):
            line = os.pread(self._file.fileno(), int(self._ends[number]) - start, start)
            if self._read_stamp() != self._stamp:
                raise StoreError(f"{self.path} was changed while it was in use: restore it, then resume")
        try:
            row = DECODER.decode(line.decode("utf-8-sig" if number == 0 else "utf-8"))
        except RecursionError:
            raise ConfigError(f"{self.locate(number)}: nested too deeply") from None
        except ValueError as error:
            raise ConfigError(f"{self.locate(number)}: not JSON: {str(error)[:200]}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{self.locate(number)}: expected an object, got {type(row).__name__}")
        return row

    def locate(self, number: int) -> str:
        """Return a row's file and line, for error messages."""
        return f"{self.path}:{number + 1}"

    def close(self) -> None:
        """Close the file. Further calls do nothing."""
        self._file.close()

    def _read_stamp(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns

    def _index(self) -> tuple[np.ndarray, str]:
        """Return the offset of each line's end, before the line break, and the file's SHA-256 in hexadecimal."""
        digest, parts, line_start, rows = hashlib.sha256(), list[np.ndarray](), 0, 0
        for offset, chunk in self._read_chunks():
            digest.update(chunk)
            breaks = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10) + offset
            starts = np.concatenate([[line_start], breaks[:-1] + 1]) if len(breaks) else breaks
            if (long := np.flatnonzero(breaks - starts > MAX_LINE_BYTES)).size:
                raise self._make_length_error(rows + int(long[0]))
            rows += len(breaks)
            if rows > MAX_ROWS:
                raise ConfigError(f"{self.path}: more than {MAX_ROWS:,} rows")
            line_start = int(breaks[-1]) + 1 if len(breaks) else line_start
            if offset + len(chunk) - line_start > MAX_LINE_BYTES:
                raise self._make_length_error(rows)
            parts.append(breaks)
        size = self._stamp[0]
        ends = np.concatenate([*parts, [size] if line_start < size else []]).astype(np.int64)
        return self._drop_blank_end(ends), digest.hexdigest()

    def _read_chunks(self) -> Iterator[tuple[int, bytes]]:
        offset = 0
        while chunk := os.pread(self._file.fileno(), CHUNK, offset):
            yield offset, chunk
            offset += len(chunk)

    def _drop_blank_end(self, ends: np.ndarray) -> np.ndarray:
        """Drop the offsets of empty lines at the file's end. Raises ConfigError for any other empty line."""
        lengths = np.diff(ends, prepend=-1) - 1
        count = len(ends)
        while count and lengths[count - 1] == 0:
            count -= 1
        if (blank := np.flatnonzero(lengths[:count] == 0)).size:
            raise ConfigError(f"{self.locate(int(blank[0]))}: an empty line")
        return ends[:count].copy()

    def _make_length_error(self, number: int) -> ConfigError:
        return ConfigError(f"{self.locate(number)}: a line of more than {MAX_LINE_BYTES >> 20} MB")
