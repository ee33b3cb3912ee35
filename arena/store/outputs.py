"""Output files of commands, at paths that the user chooses: new files, or replacements of files that Arena wrote.

Arena's files have a signature near their beginning. Only a file with the signature of the same kind is replaced. Links
are never followed.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from arena.errors import ConfigError
from arena.store.files import explain_errors, write_atomic
from games.plain_files import open_plain

HEAD = 4096
"""Bytes at the beginning of a file that hold its signature."""


class Kind(NamedTuple):
    """Kind of output file: a label for messages, and the signature near the beginning of such a file."""

    label: str
    signature: bytes


def results_kind(command: str) -> Kind:
    """Return the kind of the JSON results of the command `arena COMMAND`, whose first key is `by`."""
    return Kind(f"result of arena {command}", f'{{\n "by": "arena {command}"'.encode())


def schema_kind(name: str) -> Kind:
    """Return the kind of a JSON Schema file, recognised by its `$id`, the file name."""
    return Kind(f"schema that Arena wrote as {name}", f'"$id": "{name}"'.encode())


PICTURE = Kind("picture that Arena drew", b"tEXtSoftware\0arena")
REPORT = Kind("report of Arena", b"<!-- arena report -->")
RECORDS = Kind("file of match records", b'{"id": "')


def require_output(option: str, path: Path | None, kind: Kind) -> None:
    """Raise ConfigError unless `path` is None, does not exist, or is an empty file or one of this kind.

    Its folder must exist. `option` is the command's option, for the message.
    """
    if path is None:
        return
    argument = f"{option} {path}"
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{argument} cannot be written: there is no folder {path.parent}")
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{argument} cannot be written: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(found):
        kind_of_path = "a folder" if stat.S_ISDIR(found) else "a link" if stat.S_ISLNK(found) else "not a regular file"
        raise ConfigError(f"{argument} cannot be written: it is {kind_of_path}; give the name of a file")
    with explain_errors(path, "reading"), open_plain(path) as file:
        head = file.read(HEAD)
    if head and kind.signature not in head:
        raise ConfigError(f"{argument} exists and is not a {kind.label}: choose another name, or remove it")


def write_output(option: str, path: Path, kind: Kind, data: bytes) -> None:
    """Write `data` atomically to `path`. Raises ConfigError as `require_output` does.

    Raises ValueError if the data lacks the signature of its kind.
    """
    require_output(option, path, kind)
    if kind.signature not in data[:HEAD]:
        raise ValueError(f"{path}: this is not a {kind.label}")
    write_atomic(path, data)


def append_output(option: str, path: Path, kind: Kind, line: str) -> None:
    """Append a line to `path`, a new file or one of this kind. Raises ConfigError as `require_output` does."""
    require_output(option, path, kind)
    with explain_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line + "\n")
