"""Blobs are complete or absent, checked at every read, and bounded in size."""

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


def test_blob_is_stored_under_its_hash(tmp_path: Path) -> None:
    stored = Blobs(tmp_path / "log" / "blobs")
    assert not stored.has(NAME)
    stored.put_all({NAME: DATA})
    written = (stored.folder / NAME).stat().st_mtime_ns
    stored.put_all({NAME: DATA})
    assert stored.get(NAME) == DATA and [path.name for path in stored.folder.iterdir()] == [NAME]
    assert (stored.folder / NAME).stat().st_mtime_ns == written, "written twice"


def test_blob_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blobs").mkdir()
    calls: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append("fsync"), fsync(file))[1])
    monkeypatch.setattr(os, "replace", lambda one, other: (calls.append("rename"), rename(one, other))[1])
    Blobs(tmp_path / "blobs").put_all({NAME: DATA})
    assert calls == ["fsync", "rename", "fsync"]


def test_failed_batch_of_blobs_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure leaves intact files only, and the next attempt stores the rest."""
    images = {hashlib.sha256(data).hexdigest(): data for data in (b"\x89PNG %d" % n for n in range(100))}
    stored, fsync, synced = Blobs(tmp_path / "blobs"), os.fsync, iter(range(1000))

    def fail_once(file: int) -> None:
        if next(synced) == 30:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(file)

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(StoreError, match="Input/output error"):
        stored.put_all(images)
    names = {path.name for path in stored.folder.iterdir()}
    assert names < images.keys() and all(stored.get(name) == images[name] for name in names)
    stored.put_all(images)
    assert {path.name for path in stored.folder.iterdir()} == images.keys()
    assert all(stored.get(name) == data for name, data in images.items())


@pytest.mark.parametrize("change", [b"", DATA[:-1], DATA + b"!", b"other"])
def test_other_bytes_are_refused(tmp_path: Path, change: bytes) -> None:
    stored = Blobs(tmp_path)
    with pytest.raises(StoreError, match="does not match its bytes"):
        stored.put_all({NAME: change})
    stored.put_all({NAME: DATA})
    (tmp_path / NAME).write_bytes(change)
    with pytest.raises(StoreError, match="does not match its bytes") as error:
        stored.get(NAME)
    assert str(tmp_path / NAME) in str(error.value) and "\n" not in str(error.value)


def test_huge_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BYTES", 1000)
    with pytest.raises(StoreError, match="1000 bytes at most"):
        Blobs(tmp_path).put_all({NAME: bytes(1001)})
    with (tmp_path / NAME).open("wb") as file:
        file.truncate(1 << 40)  # larger than the disk, so it must be refused unread
    with pytest.raises(StoreError, match="1000 bytes at most"):
        Blobs(tmp_path).get(NAME)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", NAME.upper(), NAME[:-1], f"{NAME}\n", "/" + NAME[1:]])
def test_name_that_is_no_hash_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="named by a SHA-256"):
        Blobs(tmp_path).get(name)
    with pytest.raises(StoreError, match="named by a SHA-256"):
        Blobs(tmp_path).put_all({name: DATA})


def test_a_missing_blob_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        Blobs(tmp_path).get(NAME)
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(StoreError, match="no regular file"):
        Blobs(tmp_path).get(NAME)
