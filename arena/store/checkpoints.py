"""Checkpoints: written to a temporary folder, hashed, synced and renamed. Valid only if every byte is intact."""

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from arena.errors import StoreError
from arena.store import manifest
from arena.store.files import TEMPORARY, remove, require_safe_name, write_folder
from arena.store.manifest import MANIFEST

CHECKPOINT_VERSION = 1
_LOG = logging.getLogger(__name__)
_FOLDER = re.compile(r"\d{4,}")


@dataclass(frozen=True)
class Checkpoint:
    """Reference to a checkpoint: its folder, and the iteration after which its state was saved."""

    folder: Path
    iteration: int

    def policy(self, name: str) -> Path:
        """Return the folder of a policy's weights. Raises StoreError if the checkpoint has no such policy."""
        folder = self.folder / "policies" / require_safe_name(name, "policy")
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in (self.folder / "policies").glob("*"))) or "none"
            raise StoreError(f"{self.folder} has no policy {name!r}; it has: {known}")
        return folder


def write(run: Path, iteration: int, fill: Callable[[Path], None]) -> Checkpoint:
    """Write the checkpoint of an iteration atomically and return it. `fill` writes the state into a temporary folder.

    The folder then gets a manifest with the hashes of its files and replaces an earlier checkpoint of the iteration.
    Raises StoreError for a full disk or a pickle among the files.
    """
    final = folder_of(run, iteration)

    def fill_and_seal(temporary: Path) -> None:
        fill(temporary)
        manifest.seal(temporary, {"schema": CHECKPOINT_VERSION, "iteration": iteration})

    write_folder(final, fill_and_seal)
    _LOG.info("checkpoint %s is written", final)
    return Checkpoint(final, iteration)


def newest(run: Path) -> Checkpoint:
    """Return the newest checkpoint after verifying every file. Raises StoreError if there is none or it is damaged.

    Never falls back to an older checkpoint, which the user has to name.
    """
    numbers = iterations(run)
    if not numbers:
        raise StoreError(f"{run} has no checkpoint yet: let it run, or arena resume {run}")
    try:
        return at_iteration(run, numbers[-1])
    except StoreError as error:
        older = f", or ask for an older one ({', '.join(map(str, numbers[:-1]))})" if numbers[:-1] else ""
        raise StoreError(f"{error}: arena resume {run} repairs that{older}") from None


def newest_valid(
    run: Path,
    on_skip: Callable[[str], None] = lambda why: None,
    validate: Callable[[Checkpoint], object] = lambda found: None,
) -> Checkpoint | None:
    """Return the newest intact checkpoint that `validate` accepts; None if there is none.

    `validate` rejects a checkpoint by raising StoreError. Each rejected or damaged one is logged, and `on_skip` is
    called with the reason.
    """
    for iteration in reversed(iterations(run)):
        try:
            checkpoint = at_iteration(run, iteration)
            validate(checkpoint)
            return checkpoint
        except StoreError as reason:
            _LOG.warning("checkpoint skipped: %s", reason)
            on_skip(str(reason))
    return None


def at_iteration(run: Path, iteration: int) -> Checkpoint:
    """Return one iteration's checkpoint after verifying every file. Raises StoreError if it is missing or damaged."""
    folder = folder_of(run, iteration)
    if not folder.is_dir():
        known = ", ".join(str(number) for number in iterations(run)) or "none"
        raise StoreError(f"{run} has no checkpoint of iteration {iteration}; it has: {known}")
    return verify(folder)


def verify(folder: Path) -> Checkpoint:
    """Return the checkpoint in `folder` after hashing every file. Raises StoreError naming the first damaged file.

    Also raises StoreError for another schema version or a renamed folder.
    """
    body = manifest.verify(folder)
    if not isinstance(body.get("iteration"), int) or not isinstance(body.get("schema"), int):
        raise StoreError(f"checkpoint {folder} is damaged: {MANIFEST} has another format")
    if body["schema"] != CHECKPOINT_VERSION:
        raise StoreError(
            f"checkpoint {folder} has schema version {body['schema']}, and this Arena reads version "
            f"{CHECKPOINT_VERSION}: use the Arena that wrote it"
        )
    if _name(body["iteration"]) != folder.name:
        raise StoreError(f"checkpoint {folder} is of iteration {body['iteration']}: its folder was renamed")
    return Checkpoint(folder, body["iteration"])


def folder_of(run: Path, iteration: int) -> Path:
    """Return the path of an iteration's checkpoint folder, whether or not it exists."""
    return run / "checkpoints" / _name(iteration)


def iterations(run: Path) -> list[int]:
    """Return the iterations that have a checkpoint folder, ascending. The checkpoints are not verified."""
    root = run / "checkpoints"
    folders = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(int(name) for name in folders if _FOLDER.fullmatch(name))


def newest_committed(run: Path) -> int:
    """Return the newest iteration whose checkpoint folder has a manifest; 0 if there is none. Nothing is verified."""
    return max((n for n in iterations(run) if (folder_of(run, n) / MANIFEST).is_file()), default=0)


def prune(run: Path, count: int, also: Collection[int] = ()) -> list[int]:
    """Delete old checkpoints except the newest `count` and those of the iterations `also`.

    Return the deleted iterations. Checkpoints without a manifest and those of `also` do not count towards `count`.
    Raises ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"at least one checkpoint has to remain, not {count}")
    root = run / "checkpoints"
    numbers = [number for number in iterations(run) if number not in also]
    committed = [number for number in numbers if (root / _name(number) / MANIFEST).is_file()]
    oldest = min(committed[-count:], default=0)
    deleted = [number for number in numbers if number < oldest]
    for number in deleted:
        remove(root / _name(number))
    return deleted


def discard_after(run: Path, iteration: int) -> list[int]:
    """Delete later checkpoints and leftover temporary folders. Return the iterations of the later checkpoints."""
    root = run / "checkpoints"
    deleted = [number for number in iterations(run) if number > iteration]
    for folder in [root / _name(number) for number in deleted] + sorted(root.glob(f".*{TEMPORARY}")):
        remove(folder)
    return deleted


def _name(iteration: int) -> str:
    return f"{iteration:04d}"
