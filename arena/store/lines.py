"""JSON lines files: one object per line, synced to disk. An incomplete last line counts as not written."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic_core import from_json

from arena.errors import StoreError
from arena.store.files import explain_errors, fsync, make_folder, require_regular_file, write_all
from games.plain_files import read_plain

_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class LogError(StoreError):
    """Raised for a log that cannot be read. The message names the file and, if known, the line."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return a JSON lines file's objects; [] if it is missing. Raises LogError for a damaged line except the last."""
    try:
        with explain_errors(path, "reading"):
            return _parse(read_plain(path), path)[0]
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def to_line(value: dict[str, Any]) -> str:
    """Encode the object as one line of ASCII JSON without line break. Raises ValueError for NaN and infinity."""
    return _ENCODE(value)


class LineWriter:
    """Writer that appends objects to a JSON lines file. `rows` are the objects that the file had when it was opened."""

    def __init__(self, path: Path) -> None:
        """Open or create the file and its folder, and remove an incomplete last line.

        Raises LogError if another line is damaged, and StoreError for a link or a failure of the disk.
        """
        make_folder(path.parent)
        require_regular_file(path)
        self.path = path
        with explain_errors(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self.rows, self._size = _parse(read_plain(path), path)
                os.ftruncate(self._descriptor, self._size)
                fsync(path.parent)
            except BaseException:
                os.close(self._descriptor)
                raise

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    def append(self, value: dict[str, Any]) -> None:
        """Write an object as one line and sync it. Raises StoreError, with the file unchanged, if the disk fails."""
        self.write([to_line(value)])

    def write(self, texts: Iterable[str]) -> None:
        """Write lines, each an object as ASCII JSON, and sync once. On a StoreError, the file is unchanged."""
        lines = "".join(f"{text}\n" for text in texts).encode("ascii")
        with explain_errors(self.path):
            try:
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
                write_all(self._descriptor, lines)
                os.fsync(self._descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size)
                raise
        self._size += len(lines)

    def close(self) -> None:
        """Close the file. Further calls do nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "LineWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def _parse(data: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the objects of all complete lines and the total size of those lines in bytes.

    Skips an incomplete or damaged last line, which an interrupted write may leave. Raises LogError if another line is
    damaged.
    """
    rows: list[dict[str, Any]] = []
    size = 0
    *lines, _unfinished = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        row = _parse_object(line)
        if row is None:
            if number == len(lines) and not _unfinished:
                break
            raise LogError(f"{path}:{number}: this line is damaged: restore the file from a copy")
        rows.append(row)
        size += len(line) + 1
    return rows, size


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = from_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
