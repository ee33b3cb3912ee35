"""Content-addressed store of a run's images: one file per image, named by its SHA-256 and verified at every read."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from arena.errors import StoreError
from arena.store.files import explain_errors, make_folder, write_files
from games.plain_files import open_plain

MAX_BYTES = 64 << 20
"""Maximum bytes of a blob, for writing and reading."""
_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_HASH = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """Image store in a folder: one file per image, named by its SHA-256. Only one process may write at a time."""

    def __init__(self, folder: Path) -> None:
        """Use this folder. It need not exist: the first image creates it."""
        self.folder = folder
        self._verified: set[str] = set()
        """Blobs that this process wrote or verified."""

    def put_all(self, images: Mapping[str, bytes]) -> None:
        """Store images in files named by their keys, the SHA-256 in hex of their bytes, and sync them to disk.

        Intact files are kept, damaged ones replaced. Raises StoreError if a hash does not match, if an image exceeds
        `MAX_BYTES` bytes, or for a failure of the disk.
        """
        unknown = {name: data for name, data in images.items() if not (name in self._verified and self.has(name))}
        for name, data in unknown.items():
            verify_blob(_require_hash(name), data)
        if missing := {name: data for name, data in unknown.items() if not self._has_intact(name)}:
            make_folder(self.folder)
            write_files(self.folder, missing)
        self._verified.update(unknown)

    def get(self, name: str) -> bytes:
        """Return the bytes whose SHA-256 is `name`. Raises StoreError if the file is missing, too large or damaged."""
        path = self.folder / _require_hash(name)
        with explain_errors(path, "reading"), open_plain(path) as file:
            return verify_blob(name, file.read(MAX_BYTES + 1), f"{path}: ")

    def has(self, name: str) -> bool:
        """Return True if a file for this hash exists, intact or not. Raises StoreError if `name` is not a SHA-256."""
        return (self.folder / _require_hash(name)).is_file()

    def _has_intact(self, name: str) -> bool:
        """Return True if the file `name` exists, is not a link, and its bytes have this hash."""
        if (self.folder / name).is_symlink() or not self.has(name):
            return False
        try:
            self.get(name)
        except StoreError:
            return False
        return True


def find_media_type(data: bytes) -> str | None:
    """Return the media type of PNG, JPEG and WebP by their first bytes; None for anything else, such as SVG."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media for head, media in _SIGNATURES.items() if data.startswith(head)), None)


def verify_blob(name: str, data: bytes, prefix: str = "") -> bytes:
    """Return `data` if its SHA-256 in hex is `name` and it has at most `MAX_BYTES` bytes.

    Raises StoreError otherwise, with `prefix` at the start of the message.
    """
    if len(data) > MAX_BYTES:
        raise StoreError(f"{prefix}an image has {MAX_BYTES} bytes at most")
    if (found := hashlib.sha256(data).hexdigest()) != name:
        raise StoreError(f"{prefix}the image {name[:80]} does not match its bytes, whose hash is {found}")
    return data


def _require_hash(name: str) -> str:
    """Return `name` if it is a SHA-256 in 64 hex digits, which is safe in a path. Raises StoreError otherwise."""
    if not _HASH.fullmatch(name):
        raise StoreError(f"a blob is named by a SHA-256 in 64 hex digits, not {name[:80]!r}")
    return name
