"""Hashes that detect any change: a folder's manifest of all its files, and JSON files that hold their own hash."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.errors import StoreError
from arena.store.files import explain_errors, join_inside, write_atomic
from games.plain_files import UNLIMITED, open_plain, read_plain

MANIFEST = "manifest.json"
SEAL = "sha256"
"""Key in a sealed JSON file for the hash of everything else in it."""
_PICKLES = frozenset({".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})


def seal(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write `manifest.json`: SHA-256 and size of each file in the folder, its own hash, and `metadata`.

    Raises StoreError for a pickle or a link in the folder.
    """
    names = sorted(_list_files(folder, "folder"))
    for name in names:
        if Path(name).suffix.lower() in _PICKLES:
            raise StoreError(f"a checkpoint holds safetensors, JSON and text only, not {name}")
    body = {**metadata, "files": {name: fingerprint(folder / name) for name in names}}
    write_atomic(folder / MANIFEST, _render(body))


def read_manifest(folder: Path, label: str = "checkpoint") -> dict[str, Any]:
    """Return the manifest after verifying only its own hash. Raises StoreError, with `label`, if it is damaged."""
    try:
        raw = read_plain(folder / MANIFEST)
    except OSError:
        raise StoreError(f"{label} {folder} is damaged: it has no {MANIFEST}") from None
    try:
        body = json.loads(raw)["manifest"]
        is_intact = _render(body).encode() == raw and isinstance(body["files"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise StoreError(f"{label} {folder} is damaged: {MANIFEST} is not as it was written")
    return dict(body)


def verify(folder: Path, label: str = "checkpoint") -> dict[str, Any]:
    """Return the manifest after verifying every file of the folder against the hashes in its `files`.

    Raises StoreError, with `label`, naming the first file that is missing, damaged or not listed.
    """
    body = read_manifest(folder, label)
    files, present = body["files"], _list_files(folder, label)
    for name in sorted(set(files) - present):
        raise StoreError(f"{label} {folder} is damaged: {name} is missing")
    for name in sorted(present - set(files)):
        raise StoreError(f"{label} {folder} is damaged: {name} is not in its manifest")
    for name in sorted(files):
        with explain_errors(folder, "reading"):
            if fingerprint(join_inside(folder, name)) != files[name]:
                raise StoreError(f"{label} {folder} is damaged: {name} is not as it was written")
    return body


def fingerprint(path: Path) -> dict[str, Any]:
    """Return a file's SHA-256 in hex (`sha256`) and size in bytes (`size`). Raises OSError if it cannot be read."""
    with open_plain(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": digest, "size": os.fstat(file.fileno()).st_size}


def digest(body: Any) -> str:
    """Return the SHA-256 in hex of a value's JSON with sorted keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write_sealed(path: Path, body: Mapping[str, Any], ensure_ascii: bool = True) -> dict[str, Any]:
    """Write an object with its hash to a JSON file, and return the written object."""
    sealed = {**body, SEAL: digest(body)}
    write_atomic(path, json.dumps(sealed, indent=1, ensure_ascii=ensure_ascii) + "\n")
    return sealed


def read_sealed(path: Path, max_bytes: int = UNLIMITED) -> dict[str, Any]:
    """Return the object in a file from `write_sealed`, without its hash. Raises StoreError if the file was changed."""
    with explain_errors(path, "reading"):
        text = read_plain(path, max_bytes)
    try:
        body = json.loads(text)
        is_intact = body.pop(SEAL, None) == digest(body)
    except (ValueError, AttributeError, TypeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise StoreError(f"{path} is not as it was written: restore it from a copy")
    return dict(body)


def _render(body: dict[str, Any]) -> str:
    """Return the text of the manifest file: the content `body` and its hash, as JSON."""
    return json.dumps({"manifest": body, "sha256": digest(body)}, indent=1, sort_keys=True) + "\n"


def _list_files(folder: Path, label: str) -> set[str]:
    paths = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{label} {folder} is damaged: {path.name} is not a plain file")
        if path.is_file() and path != folder / MANIFEST:
            paths.add(path.relative_to(folder).as_posix())
    return paths
