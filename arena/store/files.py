"""Atomic file writes: a file is whole or absent; errors are one line."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arena.errors import StoreError

CONFIG = "config.yaml"
TEMPORARY = ".tmp"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def safe_name(name: str, what: str) -> str:
    """The name itself where it may become part of a path ([A-Za-z0-9_-]{1,64}); StoreError otherwise."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"{what} {name[:80]!r} cannot name a file: use 1 to 64 letters, digits, - and _")
    return name


def inside(root: Path, relative: str) -> Path:
    """The path of `relative` under `root`; StoreError where it is absolute or leads out of it."""
    path = root / relative
    try:
        if "\0" not in relative and path.resolve().is_relative_to(root.resolve()):
            return path
    except (OSError, RuntimeError):
        raise StoreError(f"{path} cannot be read: it is a link that leads nowhere") from None
    raise StoreError(f"{relative[:80]!r} leads out of {root}")


@contextmanager
def explained(path: Path, doing: str = "writing") -> Iterator[None]:
    """Turn an operating system's error in the block into a StoreError of one line about `path`."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        code = error.errno if isinstance(error, OSError) else _native_code(error)
        if code is None:
            raise
        raise StoreError(_explain(code, getattr(error, "strerror", None), path, doing)) from error


def require_own(path: Path) -> None:
    """Raise StoreError unless `path` is absent or a regular file of one name: links could redirect our writes."""
    with explained(path, "reading"), suppress(FileNotFoundError):
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{path} is no file: remove it")
        if found.st_nlink > 1:
            raise StoreError(f"{path} is hard-linked to another file, which would change, too: replace it by a copy")


def require_contained(folder: Path) -> None:
    """Raise StoreError if a link in the folder leads out of it: writing and removing would follow the link."""
    root, pending = os.path.realpath(folder), [os.fspath(folder)]
    with explained(folder, "reading"):
        while pending:
            with suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:  # its owner may just remove it
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(root):
                        raise StoreError(f"{entry.path} is a link that leads out of {folder}: put a copy in its place")


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, however many calls it takes; OSError from the disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomic(path: Path, data: bytes | str) -> None:
    """Put `data` (text as UTF-8) in the file at `path`; a crash leaves the old file or the new one, whole.

    Nothing is written through a link or a pipe that has the name of the unfinished file.
    """
    beside = path.with_name(f".{path.name}{TEMPORARY}")
    with explained(path):
        try:
            beside.unlink(missing_ok=True)  # left by a crash, or a link put there
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                write_all(descriptor, data.encode() if isinstance(data, str) else data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(beside, path)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        fsync(path.parent)


def write_folder(final: Path, fill: Callable[[Path], None]) -> None:
    """Have `fill` write into an empty folder, which then appears whole with all its bytes on the disk, or not at all.

    Replaces a folder that is there already. StoreError where the disk refuses, or a file has its name.
    """
    if final.exists() and not final.is_dir():
        raise StoreError(f"{final} is a file, where a folder is to be written: move it away, then arena resume goes on")
    make_folder(final.parent)
    beside = final.with_name(f".{final.name}{TEMPORARY}")
    if beside.exists():
        remove(beside)
    make_folder(beside)
    try:
        with explained(final):
            fill(beside)
            for path in sorted(beside.rglob("*"), reverse=True):
                fsync(path)
            fsync(beside)
    except BaseException:
        with suppress(StoreError):
            remove(beside)
        raise
    if final.exists():
        remove(final)
    with explained(final):
        os.replace(beside, final)
        fsync(final.parent)


def fsync(path: Path) -> None:
    """Bring a file's bytes or a folder's names to the disk; OSError from it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> Path:
    """Create a folder and those above it, durably; StoreError where that fails."""
    with explained(path, "creating"):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            fsync(folder.parent)
    return path


def remove(path: Path) -> None:
    """Remove a file or a folder, durably; a folder disappears at once, never bit by bit."""
    with explained(path, "removing"):
        if path.is_dir() and not path.is_symlink():
            aside = path.with_name(f".{path.name.lstrip('.')}.removed{TEMPORARY}")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(path, aside)
            shutil.rmtree(aside)
        else:
            path.unlink(missing_ok=True)
        fsync(path.parent)


def require_run(path: Path) -> Path:
    """The path itself when it is a run folder; StoreError otherwise."""
    if not path.exists():
        raise StoreError(f"there is no folder {path}")
    if not (path / CONFIG).is_file():
        raise StoreError(f"{path} is not a run folder: it has no {CONFIG}")
    return path


def _native_code(error: Exception) -> int | None:
    """The errno inside an error of a Rust library (safetensors), which has it in its text only."""
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def _explain(code: int, reason: str | None, path: Path, doing: str) -> str:
    reason = reason or os.strerror(code)
    if doing == "reading":
        return f"{path} cannot be read: {reason}"
    run = next((folder for folder in path.parents if (folder / CONFIG).is_file()), None)
    again = f"then arena resume {run}" if run else "then try again"
    if code in _FULL:
        return f"disk full while {doing} {path}; free some space, {again}"
    return f"{reason} while {doing} {path}; mend that, {again}"
