"""A checkpoint is intact, byte for byte, or it is not used."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import StoreError
from arena.store import checkpoints, manifest
from arena.store.checkpoints import Checkpoint
from tests.factories.store import write_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for iteration in (1, 2):
        checkpoints.write(tmp_path, iteration, write_checkpoint)
    return tmp_path


def find_newest(run: Path) -> tuple[int | None, list[str]]:
    reasons: list[str] = []
    found = checkpoints.newest_valid(run, reasons.append)
    return (found.iteration if found else None), reasons


def test_written_checkpoint_is_found_and_described(run: Path) -> None:
    folder = run / "checkpoints" / "0002"
    assert find_newest(run) == (2, [])
    assert checkpoints.at_iteration(run, 1) == Checkpoint(run / "checkpoints" / "0001", 1)
    manifest = json.loads((folder / "manifest.json").read_text())["manifest"]
    assert manifest["schema"] == 1 and manifest["iteration"] == 2
    assert manifest["files"]["policies/shared/config.json"]["size"] == 13
    assert checkpoints.at_iteration(run, 2).policy("shared") == folder / "policies" / "shared"
    assert find_newest(run / "nowhere") == (None, [])


@pytest.mark.parametrize("name", ["other", "../0001", "", "a/b"])
def test_unknown_policy_is_refused(run: Path, name: str) -> None:
    with pytest.raises(StoreError):
        checkpoints.at_iteration(run, 2).policy(name)


def test_missing_checkpoint_is_refused(run: Path) -> None:
    with pytest.raises(StoreError, match="has no checkpoint of iteration 7; it has: 1, 2"):
        checkpoints.at_iteration(run, 7)


def empty_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def link_state(folder: Path) -> None:
    (folder / "state.json").rename(folder.parent / "elsewhere.json")
    (folder / "state.json").symlink_to(folder.parent / "elsewhere.json")


def raise_schema_version(folder: Path) -> None:
    body = json.loads((folder / "manifest.json").read_text())["manifest"] | {"schema": 99}
    (folder / "manifest.json").write_text(manifest._render(body))


def copy_other_manifest(folder: Path) -> None:
    other = folder.parent / "0001" / "manifest.json"
    shutil.copy(other, folder / "manifest.json")


DAMAGE = {
    "it has no manifest.json": lambda folder: (folder / "manifest.json").unlink(),
    "damaged: it has no manifest": empty_folder,
    "state.json is missing": lambda folder: (folder / "state.json").unlink(),
    "extra.json is not in its manifest": lambda folder: (folder / "extra.json").touch(),
    "state.json is not as it was written": lambda folder: (folder / "state.json").write_text("{}"),
    "model.safetensors is not as it was": lambda f: os.truncate(f / "policies/shared/model.safetensors", 100),
    "state.json is not a plain file": link_state,
    "schema version 99": raise_schema_version,
    "its folder was renamed": copy_other_manifest,
    "manifest.json is not as it was": lambda folder: (folder / "manifest.json").write_text("[]"),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_and_named(run: Path, reason: str) -> None:
    DAMAGE[reason](run / "checkpoints" / "0002")
    found, reasons = find_newest(run)
    assert found == 1 and len(reasons) == 1 and reason in reasons[0] and "\n" not in reasons[0]
    with pytest.raises(StoreError):
        checkpoints.at_iteration(run, 2)


@given(st.data())
def test_any_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    run = tmp_path_factory.getbasetemp() / "changed"
    if not run.exists():
        checkpoints.write(run, 1, write_checkpoint)
        checkpoints.write(run, 2, write_checkpoint)
    folder = run / "checkpoints" / "0002"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(files))
    raw = path.read_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(raw[:at])
    else:
        changed = bytes([raw[at] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(raw[:at] + changed + raw[at + 1 :])
    found, reasons = find_newest(run)
    path.write_bytes(raw)
    assert found == 1 and "\n" not in reasons[0]
    assert find_newest(run) == (2, [])


def test_a_failing_writer_leaves_nothing(run: Path) -> None:
    def fail(folder: Path) -> None:
        write_checkpoint(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(run, 3, fail)
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["0001", "0002"]


@pytest.mark.parametrize("name", ["optimizer.pt", "rng.PKL", "policies/pytorch_model.bin"])
def test_pickles_are_refused(run: Path, name: str) -> None:
    def write_pickle(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")

    with pytest.raises(StoreError, match="safetensors, JSON and text only"):
        checkpoints.write(run, 3, write_pickle)
    assert checkpoints.iterations(run) == [1, 2]


def test_a_checkpoint_can_be_written_again(run: Path) -> None:
    checkpoints.write(run, 2, lambda folder: write_checkpoint(folder, "b"))
    assert json.loads((checkpoints.at_iteration(run, 2).folder / "state.json").read_text()) == {"mark": "b"}


def test_a_stray_file_is_no_checkpoint_and_is_never_overwritten(run: Path) -> None:
    stray = run / "checkpoints" / "0009"
    stray.write_text("mine")
    (run / "checkpoints" / "0008").mkdir()
    assert checkpoints.iterations(run) == [1, 2, 8] and checkpoints.newest_committed(run) == 2
    assert checkpoints.discard_after(run, 2) == [8]
    with pytest.raises(StoreError, match="is a file"):
        checkpoints.write(run, 9, write_checkpoint)
    assert stray.read_text() == "mine"


def test_prune_keeps_the_newest(run: Path) -> None:
    checkpoints.write(run, 10, write_checkpoint)
    checkpoints.write(run, 10000, write_checkpoint)
    (run / "checkpoints" / "20000").mkdir()  # torn, so not counted as kept
    assert checkpoints.prune(run, 2, also=[1]) == [2]
    assert checkpoints.prune(run, 2) == [1]
    assert checkpoints.iterations(run) == [10, 10000, 20000] and find_newest(run)[0] == 10000
    assert checkpoints.discard_after(run, 10000) == [20000]
    with pytest.raises(ValueError):
        checkpoints.prune(run, 0)


def test_writer_killed_at_any_moment_leaves_a_valid_checkpoint(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        sys.path[:0] = sys.argv[2:]
        from tests.factories.store import write_checkpoint
        from arena.store import checkpoints
        for iteration in range(1, 10**6):
            checkpoints.write(Path(sys.argv[1]), iteration, write_checkpoint)
            checkpoints.prune(Path(sys.argv[1]), 2)
            print(iteration, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), str(Path(__file__).parents[3])]
    for trial in range(4):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(3 + trial):
            done = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        done = int(rest[-1]) if rest else done
        found, reasons = find_newest(tmp_path)
        assert found in (done, done + 1) and not reasons
        checkpoints.discard_after(tmp_path, done)
        assert not list((tmp_path / "checkpoints").glob(".*"))


def test_disk_full_inside_safetensors_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    code = """
        import resource, signal, sys
        from pathlib import Path
        import numpy as np
        from safetensors.numpy import save_file
        from arena.store import checkpoints
        from arena.store.files import StoreError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            save = lambda folder: save_file({"w": np.zeros(10**5)}, folder / "model.safetensors")
            checkpoints.write(Path(sys.argv[1]), 1, save)
        except StoreError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("disk full while writing") and len(done.stdout.splitlines()) == 1, done
    assert list((tmp_path / "checkpoints").iterdir()) == []
