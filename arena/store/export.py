"""Export of a trained policy to a folder in the layout of Hugging Face checkpoints or peft adapters."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTDIR, ENOTEMPTY
from glob import escape
from pathlib import Path
from tempfile import mkdtemp
from time import time

from arena.errors import StoreError
from arena.store import checkpoints
from arena.store.files import explain_errors, require_run
from games.names import nearest

DAY = 86_400


def copy_without_optimizer(policy: Path, to: Path) -> None:
    """Copy a policy's folder without `optimizer.safetensors`. Raises OSError with its errno, which copytree hides."""
    for file in policy.rglob("*"):
        if file.is_file() and file.name != "optimizer.safetensors":
            into = to / file.relative_to(policy)
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, into)


def export(
    run: Path,
    policy: str,
    to: Path,
    iteration: int | None = None,
    write: Callable[[Path, Path], None] = copy_without_optimizer,
) -> int:
    """Export a policy's weights from a checkpoint to the new folder `to`, and return the checkpoint's iteration.

    By default the newest checkpoint is used. `write(source, target)` fills the target folder. Raises StoreError for a
    run without a valid checkpoint, an unknown policy, or a target that is not empty.
    """
    require_run(run)
    checkpoint = checkpoints.newest(run) if iteration is None else checkpoints.at_iteration(run, iteration)
    known = sorted(p.name for p in (checkpoint.folder / "policies").glob("*"))
    if policy not in known:
        has = ", ".join(known) or "none"
        raise StoreError(f"{run} has no trained policy '{policy}'{nearest(policy, known)} (it has: {has})")
    with new_folder(to) as temporary:
        write(checkpoint.policy(policy), temporary)
    return checkpoint.iteration


@contextmanager
def new_folder(to: Path) -> Iterator[Path]:
    """Yield the path of a folder to create and fill, which is renamed to `to` after the block and removed on an error.

    Its parent is a fresh temporary folder beside `to`. Raises StoreError if `to` is a link, a file or not empty, or for
    a failure of the disk.
    """
    _refuse_taken(to)
    to = to.resolve()
    with explain_errors(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(to)
        parent = Path(
            mkdtemp(prefix=f".{to.name}.exporting-", dir=to.parent)
        )  # another export may run at the same time
        try:
            yield parent / to.name
            (parent / to.name).rename(to)  # replaces an empty folder at most
        except OSError as error:
            if error.errno in (EEXIST, ENOTEMPTY, ENOTDIR):  # another export has created it meanwhile
                _refuse_taken(to)
            raise
        finally:
            shutil.rmtree(parent, ignore_errors=True)


def _refuse_taken(to: Path) -> None:
    if to.is_symlink():
        raise StoreError(f"{to} is a link: give --to the name of a new folder")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoreError(f"{to} already holds something: choose another --to")


def _remove_leftovers(to: Path) -> None:
    """Delete temporary folders that killed exports to `to` left over a day ago. No export runs that long."""
    for leftover in to.parent.glob(f".{escape(to.name)}.exporting*"):
        with suppress(OSError):
            if leftover.is_symlink():
                leftover.unlink()
            elif time() - leftover.stat().st_mtime > DAY:
                shutil.rmtree(leftover, ignore_errors=True)
