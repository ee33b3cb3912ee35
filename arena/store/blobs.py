"""Content-addressed store of a run's images: one file per image, named by its SHA-256 and verified at every read."""

import hashlib
import re
from pathlib import Path

from arena.errors import StoreError
from arena.store.files import explained, make_folder, write_atomic
from games.plain_files import open_plain

LARGEST = 64 << 20
"""Maximum bytes of a blob, for writing and reading."""
_HASH = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """Folder of blobs. Only one process may write it at a time (`RunFolder.lock`)."""

    def __init__(self, folder: Path) -> None:
        """Prepare to use the folder, which the first blob creates."""
        self.folder = folder
        self._verified: set[str] = set()
        """Blobs that this process wrote or verified."""

    def put(self, name: str, data: bytes) -> None:
        """Store bytes under their hash `name` and sync them to disk, replacing a damaged file.

        Raises StoreError as `verify_blob`, and for a failure of the disk.
        """
        if name in self._verified and self.has(name):
            return
        verify_blob(_require_hash(name), data)
        if not self._has_intact(name):
            make_folder(self.folder)
            write_atomic(self.folder / name, data)
        self._verified.add(name)

    def get(self, name: str) -> bytes:
        """Return the bytes of this hash. Raises StoreError if they are missing, too large or damaged."""
        path = self.folder / _require_hash(name)
        with explained(path, "reading"), open_plain(path) as file:
            return verify_blob(name, file.read(LARGEST + 1), f"{path}: ")

    def has(self, name: str) -> bool:
        """Return True if there is a blob of this hash."""
        return (self.folder / _require_hash(name)).is_file()

    def _has_intact(self, name: str) -> bool:
        """Return True if a regular file has exactly the bytes of this hash."""
        if (self.folder / name).is_symlink() or not self.has(name):
            return False
        try:
            self.get(name)
        except StoreError:
            return False
        return True


def verify_blob(name: str, data: bytes, prefix: str = "") -> bytes:
    """Return the bytes if they have the SHA-256 `name` and at most `LARGEST` bytes.

    Raises StoreError otherwise, with `prefix` before the message.
    """
    if len(data) > LARGEST:
        raise StoreError(f"{prefix}an image has {LARGEST} bytes at most")
    if (found := hashlib.sha256(data).hexdigest()) != name:
        raise StoreError(f"{prefix}the image {name[:80]} does not match its bytes, whose hash is {found}")
    return data


def _require_hash(name: str) -> str:
    """Return the name. Raises StoreError unless it is a SHA-256 in 64 hex digits, which cannot be a path."""
    if not _HASH.fullmatch(name):
        raise StoreError(f"a blob is named by a SHA-256 in 64 hex digits, not {name[:80]!r}")
    return name
