"""A trained policy as a plain folder, for anything that reads Hugging Face checkpoints, or peft's adapters."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTDIR, ENOTEMPTY
from glob import escape
from pathlib import Path
from tempfile import mkdtemp
from time import time

from agents.names import nearest
from arena.errors import StoreError
from arena.store import checkpoints
from arena.store.files import explained, require_run

A_DAY = 86_400


def without_optimizer(policy: Path, to: Path) -> None:
    """Copy all but the optimiser's state; OSError from the disk (copytree would hide its number)."""
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
    write: Callable[[Path, Path], None] = without_optimizer,
) -> int:
    """Have `write` make a folder of a policy's, in a checkpoint, under a name of its own; the checkpoint's iteration.

    The newest valid checkpoint if no iteration is given. StoreError for a run without one, an unknown policy,
    or a target that already holds something.
    """
    require_run(run)
    checkpoint = checkpoints.newest(run) if iteration is None else checkpoints.at_iteration(run, iteration)
    known = sorted(p.name for p in (checkpoint.folder / "policies").glob("*"))
    if policy not in known:
        has = ", ".join(known) or "none"
        raise StoreError(f"{run} has no trained policy '{policy}'{nearest(policy, known)} (it has: {has})")
    with made(to) as beside:
        write(checkpoint.policy(policy), beside)
    return checkpoint.iteration


@contextmanager
def made(to: Path) -> Iterator[Path]:
    """Yield a folder to write to, which then appears whole, under its own name, or not at all.

    StoreError where something is there already, or the disk does not take it.
    """
    _refuse_taken(to)
    to = to.resolve()
    with explained(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        _sweep(to)
        holder = Path(mkdtemp(prefix=f".{to.name}.exporting-", dir=to.parent))  # its own, as others may export, too
        try:
            yield holder / to.name
            (holder / to.name).rename(to)  # over an empty folder at most
        except OSError as error:
            if error.errno in (EEXIST, ENOTEMPTY, ENOTDIR):  # another export was first
                _refuse_taken(to)
            raise
        finally:
            shutil.rmtree(holder, ignore_errors=True)


def _refuse_taken(to: Path) -> None:
    if to.is_symlink():
        raise StoreError(f"{to} is a link: give --to the name of a new folder")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoreError(f"{to} already holds something: choose another --to")


def _sweep(to: Path) -> None:
    """Remove what exports left that were killed: nothing is as old as this while one still writes."""
    for left in to.parent.glob(f".{escape(to.name)}.exporting*"):
        with suppress(OSError):
            if left.is_symlink():
                left.unlink()
            elif time() - left.stat().st_mtime > A_DAY:
                shutil.rmtree(left, ignore_errors=True)
