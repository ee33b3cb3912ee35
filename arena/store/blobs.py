"""Images of a run by their content: one file each, named by its hash, written once and checked whenever it is read."""

import hashlib
import re
from pathlib import Path

from arena.errors import StoreError
from arena.store.files import explained, make_folder, write_atomic
from games.plain_files import open_plain

LARGEST = 64 << 20
"""Bytes of a blob, at most: what is larger is neither kept nor read."""
_HASH = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """A folder of blobs; one process writes it at a time (`RunFolder.lock`)."""

    def __init__(self, folder: Path) -> None:
        """The folder is created with the first blob."""
        self.folder = folder
        self._whole: set[str] = set()
        """The blobs that this process wrote or found as they should be."""

    def put(self, name: str, data: bytes) -> None:
        """Keep the bytes of this hash, on the disk when this returns; StoreError as `verified`, or from the disk.

        A file of that name with other bytes is replaced.
        """
        if name in self._whole and self.has(name):
            return
        verified(checked(name), data)
        if not self._holds(name):
            make_folder(self.folder)
            write_atomic(self.folder / name, data)
        self._whole.add(name)

    def get(self, name: str) -> bytes:
        """The bytes of this hash; StoreError where there are none, too many, or others."""
        path = self.folder / checked(name)
        with explained(path, "reading"), open_plain(path) as file:
            return verified(name, file.read(LARGEST + 1), f"{path}: ")

    def has(self, name: str) -> bool:
        """Return True if there is a blob of this hash."""
        return (self.folder / checked(name)).is_file()

    def _holds(self, name: str) -> bool:
        """Return True if the bytes of this hash are there, in a file of their own."""
        if (self.folder / name).is_symlink() or not self.has(name):
            return False
        try:
            self.get(name)
        except StoreError:
            return False
        return True


def verified(name: str, data: bytes, where: str = "") -> bytes:
    """The bytes themselves where they are of this hash and at most `LARGEST`; StoreError, after `where`, if not."""
    if len(data) > LARGEST:
        raise StoreError(f"{where}an image has {LARGEST} bytes at most")
    if (found := hashlib.sha256(data).hexdigest()) != name:
        raise StoreError(f"{where}the image {name[:80]} has other bytes than it was named by: their hash is {found}")
    return data


def checked(name: str) -> str:
    """The name itself where it is a SHA-256 in 64 hex digits, and so no path; StoreError otherwise."""
    if not _HASH.fullmatch(name):
        raise StoreError(f"a blob is named by a SHA-256 in 64 hex digits, not {name[:80]!r}")
    return name
