"""JSON lines: one object a line, on the disk before `append` returns; a torn line was never written."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic_core import from_json

from arena.errors import StoreError
from arena.store.files import explained, fsync, make_folder, require_own, write_all
from games.plain_files import read_plain


class LogError(StoreError):
    """A log that cannot be read; the message names the file, and the line where there is one."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of the file, [] without one; LogError for a line that is none, the last line excepted."""
    try:
        with explained(path, "reading"):
            return _parse(read_plain(path), path)[0]
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def to_line(value: dict[str, Any]) -> str:
    """One line of pure ASCII, so that nothing in a text can end it early; ValueError for NaN."""
    return _ENCODE(value)


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class LineWriter:
    """Appends lines to one file, having first cut off a torn last line."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; LogError where it is damaged, StoreError for a link or where the disk refuses."""
        make_folder(path.parent)
        require_own(path)
        self.path = path
        with explained(path):
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
        """Bytes of all whole lines."""
        return self._size

    def append(self, value: dict[str, Any]) -> None:
        """Write one line and wait until the disk has it; on failure the file is as before."""
        self.write([to_line(value)])

    def write(self, texts: Iterable[str]) -> None:
        """Write lines, each the ASCII text of an object, and wait once for the disk; or the file is as before."""
        lines = "".join(f"{text}\n" for text in texts).encode("ascii")
        with explained(self.path):
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
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "LineWriter":
        """The writer itself, closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def _parse(data: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of all whole lines, and how many bytes those lines fill."""
    rows: list[dict[str, Any]] = []
    size = 0
    *lines, _unfinished = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        row = _object(line)
        if row is None:
            if number == len(lines) and not _unfinished:
                break
            raise LogError(f"{path}:{number}: this line is damaged: restore the file from a copy")
        rows.append(row)
        size += len(line) + 1
    return rows, size


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = from_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
