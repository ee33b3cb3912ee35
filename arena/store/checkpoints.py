"""Checkpoints: written beside, hashed, fsynced, renamed; valid only if every byte is as the manifest says."""

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from arena.errors import StoreError
from arena.store import manifest
from arena.store.files import TEMPORARY, remove, safe_name, write_folder
from arena.store.manifest import MANIFEST

CHECKPOINT_VERSION = 1
_LOG = logging.getLogger(__name__)
_FOLDER = re.compile(r"\d{4,}")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: the state after `iteration`."""

    folder: Path
    iteration: int

    def policy(self, name: str) -> Path:
        """The folder of a policy's weights; StoreError when the checkpoint has none of that name."""
        folder = self.folder / "policies" / safe_name(name, "policy")
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in (self.folder / "policies").glob("*"))) or "none"
            raise StoreError(f"{self.folder} has no policy {name!r}; it has: {known}")
        return folder


def write(run: Path, iteration: int, fill: Callable[[Path], None]) -> Checkpoint:
    """Commit the state after `iteration`: `fill` writes it into an empty folder, which then appears whole.

    Replaces a checkpoint of the same iteration. StoreError for a full disk or a pickle among the files.
    """
    final = folder_of(run, iteration)

    def whole(beside: Path) -> None:
        fill(beside)
        manifest.seal(beside, {"schema": CHECKPOINT_VERSION, "iteration": iteration})

    write_folder(final, whole)
    _LOG.info("checkpoint %s is written", final)
    return Checkpoint(final, iteration)


def newest(run: Path) -> Checkpoint:
    """The newest checkpoint; StoreError where there is none, or it is not whole: nobody gets older weights unasked."""
    numbers = iterations(run)
    if not numbers:
        raise StoreError(f"{run} has no checkpoint yet: let it run, or arena resume {run}")
    try:
        return at_iteration(run, numbers[-1])
    except StoreError as error:
        older = f", or ask for an older one ({', '.join(map(str, numbers[:-1]))})" if numbers[:-1] else ""
        raise StoreError(f"{error}: arena resume {run} mends that{older}") from None


def newest_valid(
    run: Path,
    skipped: Callable[[str], None] = lambda why: None,
    also: Callable[[Checkpoint], object] = lambda found: None,
) -> Checkpoint | None:
    """The newest checkpoint whose every byte is right, or None; `skipped` is called with why newer ones are not.

    `also` may say, by a StoreError, that one which is whole is not it either.
    """
    for iteration in reversed(iterations(run)):
        try:
            checkpoint = at_iteration(run, iteration)
            also(checkpoint)
            return checkpoint
        except StoreError as reason:
            _LOG.warning("checkpoint skipped: %s", reason)
            skipped(str(reason))
    return None


def at_iteration(run: Path, iteration: int) -> Checkpoint:
    """The checkpoint of one iteration; StoreError saying what is wrong when it is missing or torn."""
    folder = folder_of(run, iteration)
    if not folder.is_dir():
        known = ", ".join(str(number) for number in iterations(run)) or "none"
        raise StoreError(f"{run} has no checkpoint of iteration {iteration}; it has: {known}")
    return verify(folder)


def verify(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, every file hashed; StoreError naming the first file that is not right."""
    body = manifest.verify(folder)
    if not isinstance(body.get("iteration"), int) or not isinstance(body.get("schema"), int):
        raise StoreError(f"checkpoint {folder} is torn: {MANIFEST} is of something else")
    if body["schema"] > CHECKPOINT_VERSION:
        raise StoreError(f"checkpoint {folder} is of a newer Arena: upgrade arena-selfplay")
    if _name(body["iteration"]) != folder.name:
        raise StoreError(f"checkpoint {folder} is of iteration {body['iteration']}: its folder was renamed")
    return Checkpoint(folder, body["iteration"])


def folder_of(run: Path, iteration: int) -> Path:
    """Return the folder of an iteration's checkpoint, which need not exist."""
    return run / "checkpoints" / _name(iteration)


def iterations(run: Path) -> list[int]:
    """Numbers of all checkpoints, valid or not, ascending; what is no folder is none."""
    root = run / "checkpoints"
    folders = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(int(name) for name in folders if _FOLDER.fullmatch(name))


def committed(run: Path) -> int:
    """The last iteration that was committed: its checkpoint has a manifest. 0 where none was."""
    return max((n for n in iterations(run) if (folder_of(run, n) / MANIFEST).is_file()), default=0)


def keep(run: Path, count: int, also: Collection[int] = ()) -> list[int]:
    """Remove all but `also` and the newest `count` >= 1 checkpoints with a manifest; returns which went."""
    if count < 1:
        raise ValueError(f"at least one checkpoint is kept, not {count}")
    root = run / "checkpoints"
    numbers = [number for number in iterations(run) if number not in also]
    whole = [number for number in numbers if (root / _name(number) / MANIFEST).is_file()]
    oldest = min(whole[-count:], default=0)
    gone = [number for number in numbers if number < oldest]
    for number in gone:
        remove(root / _name(number))
    return gone


def discard_after(run: Path, iteration: int) -> list[int]:
    """Remove later checkpoints, which are torn if `iteration` was the newest valid, and half-written ones."""
    root = run / "checkpoints"
    gone = [number for number in iterations(run) if number > iteration]
    for folder in [root / _name(number) for number in gone] + sorted(root.glob(f".*{TEMPORARY}")):
        remove(folder)
    return gone


def _name(iteration: int) -> str:
    return f"{iteration:04d}"
