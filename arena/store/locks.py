"""Locks of folders: one process writes in a run's or a study's folder at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from arena.errors import StoreError
from arena.store.files import explain_errors, require_contained, require_regular_file, write_atomic
from games.plain_files import read_plain

LOCK, HOLDER = "run.lock", "run.pid"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock during the block, so that only this process writes there. `run.pid` holds its id.

    Raises StoreError at once if another process holds the lock, or if a link leads out of the folder.
    """
    require_contained(folder)
    lock = _lock(folder)
    try:
        with explain_errors(folder / LOCK):
            lock.acquire()
    except Timeout:
        number = read_holder(folder)
        by = "another process" if number is None else f"process {number}"
        raise StoreError(f"{folder} is in use by {by}") from None
    try:
        write_atomic(folder / HOLDER, f"{os.getpid()}\n")
        yield
    finally:
        with suppress(OSError):
            (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def is_in_use(folder: Path) -> bool:
    """Return True if a process, even this one, holds the folder's lock; False if the folder is missing."""
    if not folder.is_dir():
        return False
    try:
        with explain_errors(folder / LOCK), _lock(folder):
            return False
    except Timeout:
        return True


def read_holder(folder: Path) -> int | None:
    """Return the process id in the folder's `run.pid`, perhaps of a killed process; None if there is none."""
    try:
        number = int(read_plain(folder / HOLDER, 20))
    except (OSError, ValueError):
        return None
    return number if number > 0 else None  # signals to 0 and below reach whole groups of processes


def _lock(folder: Path) -> FileLock:
    require_regular_file(folder / LOCK)
    return FileLock(folder / LOCK, timeout=0)
