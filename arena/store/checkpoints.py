"""Checkpoints: written beside, hashed, fsynced, renamed; valid only if every byte is as the manifest says."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.errors import StoreError
from arena.store.files import (
    TEMPORARY,
    explained,
    inside,
    remove,
    safe_name,
    write_atomic,
    write_folder,
)

MANIFEST = "manifest.json"
CHECKPOINT_VERSION = 1
_FOLDER = re.compile(r"\d{4,}")
_PICKLES = frozenset({".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})


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
    final = run / "checkpoints" / _name(iteration)

    def whole(beside: Path) -> None:
        fill(beside)
        write_atomic(beside / MANIFEST, _render(_describe(beside, iteration)))

    write_folder(final, whole)
    return Checkpoint(final, iteration)


def newest_valid(run: Path, skipped: Callable[[str], None] | None = None) -> Checkpoint | None:
    """The newest checkpoint whose every byte is right, or None; `skipped` hears why newer ones are not it."""
    for iteration in reversed(iterations(run)):
        try:
            return given(run, iteration)
        except StoreError as reason:
            if skipped is not None:
                skipped(str(reason))
    return None


def given(run: Path, iteration: int) -> Checkpoint:
    """The checkpoint of one iteration; StoreError saying what is wrong when it is missing or torn."""
    folder = run / "checkpoints" / _name(iteration)
    if not folder.is_dir():
        known = ", ".join(str(number) for number in iterations(run)) or "none"
        raise StoreError(f"{run} has no checkpoint of iteration {iteration}; it has: {known}")
    return verify(folder)


def verify(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, every file hashed; StoreError naming the first file that is not right."""
    body = _manifest(folder)
    files = body["files"]
    present = _files(folder)
    for name in sorted(set(files) - present):
        raise StoreError(f"checkpoint {folder} is torn: {name} is missing")
    for name in sorted(present - set(files)):
        raise StoreError(f"checkpoint {folder} is torn: {name} is not in its manifest")
    for name in sorted(files):
        with explained(folder, "reading"):
            if _fingerprint(inside(folder, name)) != files[name]:
                raise StoreError(f"checkpoint {folder} is torn: {name} is not as it was written")
    return Checkpoint(folder, body["iteration"])


def iterations(run: Path) -> list[int]:
    """Numbers of all checkpoints, valid or not, ascending."""
    root = run / "checkpoints"
    names = [folder.name for folder in root.iterdir()] if root.is_dir() else []
    return sorted(int(name) for name in names if _FOLDER.fullmatch(name))


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


def _describe(folder: Path, iteration: int) -> dict[str, Any]:
    names = sorted(_files(folder))
    for name in names:
        if Path(name).suffix.lower() in _PICKLES:
            raise StoreError(f"a checkpoint holds safetensors, JSON and text only, not {name}")
    files = {name: _fingerprint(folder / name) for name in names}
    return {"schema": CHECKPOINT_VERSION, "iteration": iteration, "files": files}


def _render(body: dict[str, Any]) -> str:
    """The manifest's text, which ends with the hash of its own body, so that its bytes are covered too."""
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"manifest": body, "sha256": digest}, indent=1, sort_keys=True) + "\n"


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        raw = (folder / MANIFEST).read_bytes()
    except OSError:
        raise StoreError(f"checkpoint {folder} is torn: it has no {MANIFEST}") from None
    try:
        body = json.loads(raw)["manifest"]
        right = _render(body).encode() == raw and isinstance(body["iteration"], int)
    except (ValueError, KeyError, TypeError, RecursionError):
        right = False
    if not right:
        raise StoreError(f"checkpoint {folder} is torn: {MANIFEST} is not as it was written")
    if body["schema"] > CHECKPOINT_VERSION:
        raise StoreError(f"checkpoint {folder} is of a newer Arena: upgrade arena-selfplay")
    if _name(body["iteration"]) != folder.name:
        raise StoreError(f"checkpoint {folder} is of iteration {body['iteration']}: its folder was renamed")
    return dict(body)


def _files(folder: Path) -> set[str]:
    paths = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"checkpoint {folder} is torn: {path.name} is not a plain file")
        if path.is_file() and path != folder / MANIFEST:
            paths.add(path.relative_to(folder).as_posix())
    return paths


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": digest, "size": os.fstat(file.fileno()).st_size}
