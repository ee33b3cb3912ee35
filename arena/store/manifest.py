"""Manifests: a folder is valid only if every byte in it is as its manifest says, and the manifest's own are too."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.errors import StoreError
from arena.store.files import explained, inside, write_atomic
from games.plain_files import open_plain, read_plain

MANIFEST = "manifest.json"
_PICKLES = frozenset({".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})


def seal(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the manifest of what the folder holds, and what it is `about`; StoreError for a pickle among the files."""
    names = sorted(_files(folder, "folder"))
    for name in names:
        if Path(name).suffix.lower() in _PICKLES:
            raise StoreError(f"a checkpoint holds safetensors, JSON and text only, not {name}")
    body = {**about, "files": {name: fingerprint(folder / name) for name in names}}
    write_atomic(folder / MANIFEST, _render(body))


def described(folder: Path, what: str = "checkpoint") -> dict[str, Any]:
    """Read the manifest, checking its own bytes alone; StoreError, naming `what` it is, for a torn one."""
    try:
        raw = read_plain(folder / MANIFEST)
    except OSError:
        raise StoreError(f"{what} {folder} is torn: it has no {MANIFEST}") from None
    try:
        body = json.loads(raw)["manifest"]
        right = _render(body).encode() == raw and isinstance(body["files"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        right = False
    if not right:
        raise StoreError(f"{what} {folder} is torn: {MANIFEST} is not as it was written")
    return dict(body)


def verify(folder: Path, what: str = "checkpoint") -> dict[str, Any]:
    """Read the manifest and check every file's hash; StoreError naming the first file that is not right."""
    body = described(folder, what)
    files, present = body["files"], _files(folder, what)
    for name in sorted(set(files) - present):
        raise StoreError(f"{what} {folder} is torn: {name} is missing")
    for name in sorted(present - set(files)):
        raise StoreError(f"{what} {folder} is torn: {name} is not in its manifest")
    for name in sorted(files):
        with explained(folder, "reading"):
            if fingerprint(inside(folder, name)) != files[name]:
                raise StoreError(f"{what} {folder} is torn: {name} is not as it was written")
    return body


def fingerprint(path: Path) -> dict[str, Any]:
    """SHA-256 and size of a file; OSError where it cannot be read."""
    with open_plain(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": digest, "size": os.fstat(file.fileno()).st_size}


def digest(body: Any) -> str:
    """The hash of a value's JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _render(body: dict[str, Any]) -> str:
    """The manifest's text, which ends with the hash of its own body, so that its bytes are covered too."""
    return json.dumps({"manifest": body, "sha256": digest(body)}, indent=1, sort_keys=True) + "\n"


def _files(folder: Path, what: str) -> set[str]:
    paths = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{what} {folder} is torn: {path.name} is not a plain file")
        if path.is_file() and path != folder / MANIFEST:
            paths.add(path.relative_to(folder).as_posix())
    return paths
