"""The holder of a folder's lock writes in that folder only; no link leads a resumed run or study out of it."""

import os
from pathlib import Path

import pytest

from arena.errors import StoreError
from arena.store.lines import LineWriter
from arena.store.locks import HOLDER, LOCK, is_in_use, lock_folder, read_holder
from arena.store.run import RunFolder

FOLDERS = ["checkpoints", "league", "log", "tensorboard", "trackers", "imitation", "roles", "league/old@3"]
FILES = ["metrics.jsonl", "run.log", "feed.jsonl", LOCK, HOLDER, "checkpoints/0001/state.json", "deep/" * 40 + "x"]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "name: x\n", {})


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
def test_a_link_that_leads_out_is_refused_before_anything_is_written(run: RunFolder, name: str) -> None:
    home = run.path.parent / "home"
    (home / "old@3").mkdir(parents=True)
    (home / "precious").write_text("precious")
    (run.path / name).parent.mkdir(parents=True, exist_ok=True)
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(home if name in FOLDERS else home / "precious")
    with pytest.raises(StoreError, match="leads out of") as error, run.lock():
        pass
    assert str(run.path / name) in str(error.value) and "\n" not in str(error.value)
    assert sorted(p.name for p in home.iterdir()) == ["old@3", "precious"]
    assert (home / "precious").read_text() == "precious"


@pytest.mark.parametrize("target", ["../nowhere", "/dev/null", "checkpoints/../../x"])
def test_a_link_out_to_nothing_is_refused(run: RunFolder, target: str) -> None:
    (run.path / "checkpoints").symlink_to(target)
    with pytest.raises(StoreError, match="leads out of"), run.lock():
        pass


def test_links_within_the_folder_and_to_the_folder_are_followed(run: RunFolder) -> None:
    (run.path / "mine").symlink_to("config.yaml")
    (run.path / "loop").symlink_to("loop")
    (run.path.parent / "latest").symlink_to("run")
    latest = RunFolder.open(run.path.parent / "latest")
    with latest.lock():
        assert is_in_use(run.path)
    assert latest.path == run.path


def test_lock_is_a_regular_file_of_this_run(run: RunFolder) -> None:
    precious = run.path.parent / "precious"
    precious.write_text("precious")
    lock = run.path / LOCK
    for make in (lambda: lock.symlink_to(precious), lambda: lock.hardlink_to(precious), lambda: os.mkfifo(lock)):
        lock.unlink(missing_ok=True)
        make()
        for take in (lambda: is_in_use(run.path), lambda: lock_folder(run.path).__enter__()):
            with pytest.raises(StoreError):
                take()
    assert precious.read_text() == "precious"


def test_hard_linked_file_is_not_appended_to(tmp_path: Path) -> None:
    """`cp -al` and hard-link backups leave such files; a line for one run would appear in the other."""
    (tmp_path / "other.jsonl").write_text('{"iteration":1}\n')
    (tmp_path / "metrics.jsonl").hardlink_to(tmp_path / "other.jsonl")
    with pytest.raises(StoreError, match="hard-linked"):
        LineWriter(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1" * 30, "é"])
def test_invalid_process_id_is_ignored(run: RunFolder, text: str) -> None:
    (run.path / HOLDER).write_text(text)
    assert read_holder(run.path) is None


def test_run_path_is_independent_of_the_working_directory(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes of a run work in other folders and read files of the run's folder."""
    monkeypatch.chdir(run.path.parent)
    relative = RunFolder.open("run")
    monkeypatch.chdir("/")
    assert relative.path == run.path
    with relative.lock():
        assert relative.checkpoint(0, lambda folder: None).folder.is_dir()
