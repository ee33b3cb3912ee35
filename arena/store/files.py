"""Atomic writes of files and folders, and checks of paths. OS errors become StoreErrors with a one-line message."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from arena.errors import StoreError

CONFIG = "config.yaml"
STAGES = "stages"
"""Folder with the stages' run folders in the folder of a pipeline."""
TEMPORARY = ".tmp"
_SYNCS = 16
"""Files that `write_files` syncs at once."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_safe_name(name: str, label: str) -> str:
    """Return `name` if it can be part of a path: 1 to 64 letters, digits, - and _. Raises StoreError otherwise."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"{label} {name[:80]!r} cannot name a file: use 1 to 64 letters, digits, - and _")
    return name


def join_inside(root: Path, relative: str) -> Path:
    """Return the path `root / relative`. Raises StoreError if it leads out of `root`, also by a link."""
    path = root / relative
    try:
        if "\0" not in relative and path.resolve().is_relative_to(root.resolve()):
            return path
    except (OSError, RuntimeError):
        raise StoreError(f"{path} cannot be read: it is a link that leads nowhere") from None
    raise StoreError(f"{relative[:80]!r} leads out of {root}")


@contextmanager
def explain_errors(path: Path, action: str = "writing") -> Iterator[None]:
    """Convert operating system errors in the block to a one-line StoreError about `path`, with advice for the user.

    `action` is `writing`, `reading`, `creating` or `removing`.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        native = re.search(r"\(os error (\d+)\)", str(error))  # in the message of a Rust library (safetensors)
        code = error.errno if isinstance(error, OSError) else int(native[1]) if native else None
        if code is None:
            raise
        raise StoreError(_format_error(code, getattr(error, "strerror", None), path, action)) from error


def require_regular_file(path: Path) -> None:
    """Raise StoreError unless `path` is absent or a regular file with one link: links could redirect our writes."""
    with explain_errors(path, "reading"), suppress(FileNotFoundError):
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{path} is not a regular file: remove it")
        if found.st_nlink > 1:
            raise StoreError(f"{path} is hard-linked to another file, which would change, too: replace it by a copy")


def require_contained(folder: Path) -> None:
    """Raise StoreError if a link in the folder leads out of it. Writing and removing would follow such a link."""
    root, pending = os.path.realpath(folder), [os.fspath(folder)]
    with explain_errors(folder, "reading"):
        while pending:
            with (
                suppress(FileNotFoundError),
                os.scandir(pending.pop()) as entries,
            ):  # the run may remove it at this moment
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(root):
                        raise StoreError(f"{entry.path} is a link that leads out of {folder}: put a copy in its place")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor, in as many calls as needed. Raises OSError if the disk fails."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace the file at `path` by `data` (text as UTF-8), synced to disk. A crash leaves the old or the new file.

    Links and pipes with the name of the temporary file are removed, not followed. Raises StoreError for a failure of
    the disk.
    """
    _replace_unsynced(path, data.encode() if isinstance(data, str) else data)
    with explain_errors(path):
        fsync(path.parent)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace files in a folder, by name, each as `write_atomic` does; an error may leave some of them replaced.

    Their syncs overlap: a disk needs about as long for many syncs at once as for one.
    """
    with ThreadPoolExecutor(_SYNCS) as threads:
        for _ in threads.map(_replace_unsynced, (folder / name for name in files), files.values()):
            pass
    with explain_errors(folder):
        fsync(folder)


def _replace_unsynced(path: Path, data: bytes) -> None:
    """Replace the file at `path` by `data`, synced to disk, without syncing its folder."""
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    with explain_errors(path):
        try:
            temporary.unlink(missing_ok=True)  # a leftover of a crash, or a planted link
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def write_folder(final: Path, fill: Callable[[Path], None]) -> None:
    """Write the folder `final` atomically, replacing an existing one. `fill` writes into a temporary folder.

    That folder is synced to disk and renamed, or removed on an error. Raises StoreError for a failure of the disk, or
    if `final` is a file.
    """
    if final.exists() and not final.is_dir():
        raise StoreError(f"{final} is a file, but a folder will be written there: move it away, then arena resume")
    make_folder(final.parent)
    temporary = final.with_name(f".{final.name}{TEMPORARY}")
    if temporary.exists():
        remove(temporary)
    make_folder(temporary)
    try:
        with explain_errors(final):
            fill(temporary)
            for path in sorted(temporary.rglob("*"), reverse=True):
                fsync(path)
            fsync(temporary)
    except BaseException:
        with suppress(StoreError):
            remove(temporary)
        raise
    if final.exists():
        remove(final)
    with explain_errors(final):
        os.replace(temporary, final)
        fsync(final.parent)


def fsync(path: Path) -> None:
    """Sync a file's bytes or a folder's entries to disk. Raises OSError if that fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> Path:
    """Create a folder with its parents, sync them to disk, and return `path`. Raises StoreError if that fails."""
    with explain_errors(path, "creating"):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            fsync(folder.parent)
    return path


def remove(path: Path) -> None:
    """Delete a file or folder, if any, and sync to disk. A folder is renamed first, so it disappears at once."""
    with explain_errors(path, "removing"):
        if path.is_dir() and not path.is_symlink():
            aside = path.with_name(f".{path.name.lstrip('.')}.removed{TEMPORARY}")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(path, aside)
            shutil.rmtree(aside)
        else:
            path.unlink(missing_ok=True)
        fsync(path.parent)


def require_run(path: Path) -> Path:
    """Return `path` if it is the folder of a single run. Raises StoreError otherwise, also for a pipeline's."""
    require_config(path)
    if (path / STAGES).is_dir():
        first = next((stage for stage in sorted((path / STAGES).iterdir())), path / STAGES / "01-NAME")
        raise StoreError(f"{path} is a pipeline: name one of its stages, such as {first}")
    return path


def require_config(path: Path) -> Path:
    """Return `path` if it is the folder of a run or pipeline, with a `config.yaml`. Raises StoreError otherwise."""
    if not path.exists():
        raise StoreError(f"there is no folder {path}")
    if not (path / CONFIG).is_file():
        raise StoreError(f"{path} is not a run folder: it has no {CONFIG}")
    return path


def _format_error(code: int, reason: str | None, path: Path, action: str) -> str:
    reason = reason or os.strerror(code)
    if action == "reading":
        return f"{path} cannot be read: {reason}"
    run = next((folder for folder in path.parents if (folder / CONFIG).is_file()), None)
    next_step = f"then arena resume {run}" if run else "then try again"
    if code in _FULL:
        return f"disk full while {action} {path}; free some space, {next_step}"
    return f"{reason} while {action} {path}; fix that, {next_step}"
