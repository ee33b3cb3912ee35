"""Files that a command writes where its user says: new ones, or in place of what Arena wrote there before.

One rule for all of them: what Arena writes bears a mark at its beginning, and only a file with the mark of the same
purpose is replaced. Links are never followed.
"""

import os
import stat
import zlib
from pathlib import Path
from typing import NamedTuple

from arena.errors import ConfigError
from arena.store.files import explained, write_atomic
from games.plain_files import open_plain

HEAD = 4096
PNG = b"\x89PNG\r\n\x1a\n"
IHDR_END = len(PNG) + 25


class Kind(NamedTuple):
    """A purpose of files: its name, and the bytes that every one of its files holds at its beginning."""

    what: str
    mark: bytes


def results(command: str) -> Kind:
    """Results of a command as JSON, whose first key is `by`."""
    return Kind(f"result of arena {command}", f'{{\n "by": "arena {command}"'.encode())


def schema(name: str) -> Kind:
    """A JSON Schema of this file name."""
    return Kind(f"schema that Arena wrote as {name}", f'"$id": "{name}"'.encode())


PICTURE = Kind("picture that Arena drew", b"tEXtSoftware\0arena")
REPORT = Kind("arena report", b"<!-- arena report -->")
RECORDS = Kind("file of match records", b'{"id": "')


def require_output(option: str, path: Path | None, kind: Kind) -> None:
    """ConfigError where the path is no place for a new file, and no file of this kind either."""
    if path is None:
        return
    said = f"{option} {path}"
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{said} cannot be written: there is no folder {path.parent}")
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{said} cannot be written: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(found):
        what = "a folder" if stat.S_ISDIR(found) else "a link" if stat.S_ISLNK(found) else "no regular file"
        raise ConfigError(f"{said} cannot be written: it is {what}; give the name of a file")
    with explained(path, "reading"), open_plain(path) as file:
        head = file.read(HEAD)
    if head and kind.mark not in head:
        raise ConfigError(f"{said} is there already and is no {kind.what}: choose another name, or remove it")


def write_output(option: str, path: Path, kind: Kind, data: bytes) -> None:
    """Write the data, with its kind's mark, where `require_output` lets it; whole or not at all."""
    require_output(option, path, kind)
    if kind is PICTURE:
        data = _signed(data)
    if kind.mark not in data[:HEAD]:
        raise ValueError(f"{path}: this is no {kind.what}")
    write_atomic(path, data)


def append_output(option: str, path: Path, kind: Kind, line: str) -> None:
    """Add a line to a new file, or to one of this kind."""
    require_output(option, path, kind)
    with explained(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def _signed(png: bytes) -> bytes:
    """The picture with a text chunk, behind its header, that says what drew it."""
    body = PICTURE.mark
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    return png[:IHDR_END] + chunk + png[IHDR_END:]
