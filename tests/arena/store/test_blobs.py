"""Blobs: whole or absent, checked whenever they are read, and never more than there is room for."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from arena.errors import StoreError
from arena.store import blobs
from arena.store.blobs import Blobs

DATA = b"\x89PNG not really"
NAME = hashlib.sha256(DATA).hexdigest()


def test_what_is_put_is_got_and_lies_under_its_hash(tmp_path: Path) -> None:
    kept = Blobs(tmp_path / "log" / "blobs")
    assert not kept.has(NAME)
    kept.put(NAME, DATA)
    written = (kept.folder / NAME).stat().st_mtime_ns
    kept.put(NAME, DATA)
    assert kept.get(NAME) == DATA and [path.name for path in kept.folder.iterdir()] == [NAME]
    assert (kept.folder / NAME).stat().st_mtime_ns == written, "written once"


def test_a_blob_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blobs").mkdir()
    done: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), fsync(file))[1])
    monkeypatch.setattr(os, "replace", lambda one, other: (done.append("rename"), rename(one, other))[1])
    Blobs(tmp_path / "blobs").put(NAME, DATA)
    assert done == ["fsync", "rename", "fsync"]


def test_many_blobs_are_stored_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure in between leaves intact files only, and the next attempt stores the rest."""
    images = {hashlib.sha256(data).hexdigest(): data for data in (b"\x89PNG %d" % n for n in range(100))}
    kept, fsync, synced = Blobs(tmp_path / "blobs"), os.fsync, iter(range(1000))

    def fail_once(file: int) -> None:
        if next(synced) == 30:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(file)

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(StoreError, match="Input/output error"):
        kept.put_all(images)
    left = {path.name for path in kept.folder.iterdir()}
    assert left < images.keys() and all(kept.get(name) == images[name] for name in left)
    kept.put_all(images)
    assert {path.name for path in kept.folder.iterdir()} == images.keys()
    assert all(kept.get(name) == data for name, data in images.items())


@pytest.mark.parametrize("change", [b"", DATA[:-1], DATA + b"!", b"other"])
def test_other_bytes_are_refused(tmp_path: Path, change: bytes) -> None:
    kept = Blobs(tmp_path)
    with pytest.raises(StoreError, match="does not match its bytes"):
        kept.put(NAME, change)
    kept.put(NAME, DATA)
    (tmp_path / NAME).write_bytes(change)
    with pytest.raises(StoreError, match="does not match its bytes") as refusal:
        kept.get(NAME)
    assert str(tmp_path / NAME) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_huge_file_is_refused_before_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BYTES", 1000)
    with pytest.raises(StoreError, match="1000 bytes at most"):
        Blobs(tmp_path).put(NAME, bytes(1001))
    with (tmp_path / NAME).open("wb") as file:
        file.truncate(1 << 40)  # no such disk: it has to be refused by its first bytes
    with pytest.raises(StoreError, match="1000 bytes at most"):
        Blobs(tmp_path).get(NAME)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", NAME.upper(), NAME[:-1], f"{NAME}\n", "/" + NAME[1:]])
def test_a_name_that_is_no_hash_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="named by a SHA-256"):
        Blobs(tmp_path).get(name)
    with pytest.raises(StoreError, match="named by a SHA-256"):
        Blobs(tmp_path).put(name, DATA)


def test_a_missing_blob_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        Blobs(tmp_path).get(NAME)
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(StoreError, match="no regular file"):
        Blobs(tmp_path).get(NAME)
