"""Changes to committed files are noticed: a resumed run goes back to an intact state or is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.errors import StoreError
from arena.store import contents
from arena.store.checkpoints import Checkpoint
from arena.store.run import RunFolder
from tests.factories.store import CONFIG, make_record, write_state
from tests.factories.traces import flip_byte


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a run of three iterations with the checkpoints of the last two."""
    run = RunFolder.create(tmp_path / "run", CONFIG, {"commands": []})
    for k in (1, 2, 3):
        run.log.extend([make_record(k, 0)])
        run.log.seal(k)
        run.log.write_credit(k, [])
        run.metrics.append({"iteration": k, "loss": 0.25})
        run.checkpoint(k, write_state)
    shutil.rmtree(run.path / "checkpoints" / "0001")
    return RunFolder.open(run.path)


def find_resume_point(run: RunFolder) -> tuple[Checkpoint | None, list[str]]:
    notes: list[str] = []
    return run.find_resume_point(notes.append), notes


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "a byte changed": flip_byte,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


def test_intact_run_resumes(run: RunFolder) -> None:
    checkpoint, notes = find_resume_point(run)
    assert checkpoint is not None and checkpoint.iteration == 3 and notes == []


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["0003.parquet", "0003.credit.parquet"])
def test_damage_to_the_latest_iteration_is_healed_by_replay(run: RunFolder, file: str, damage: str) -> None:
    path = run.path / "log" / file
    DAMAGE[damage](path)
    checkpoint, (note,) = find_resume_point(run)
    assert (
        checkpoint is not None and checkpoint.iteration == 2 and str(path) in note and note.endswith("from iteration 2")
    )
    run.discard_after(2)
    assert run.log.iterations() == [1, 2] and [row["iteration"] for row in run.metrics.read()] == [1, 2]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["log/0001.parquet", "log/0002.credit.parquet", "metrics.jsonl"])
def test_damage_before_every_checkpoint_is_refused(run: RunFolder, file: str, damage: str) -> None:
    path = run.path / file
    DAMAGE[damage](path)
    if file == "metrics.jsonl" and damage == "cut":
        assert find_resume_point(run)[1][0].startswith(f"{path} is not as it was written"), (
            "only the last row is damaged"
        )
        return
    with pytest.raises(StoreError, match=r"no checkpoint is intact .* restore") as error:
        find_resume_point(run)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(StoreError, match=path.name):
        contents.check_newest(run.path)


def test_a_committed_row_of_metrics_cannot_change(run: RunFolder) -> None:
    path = run.path / "metrics.jsonl"
    path.write_text(path.read_text().replace("0.25", "0.35", 1))
    with pytest.raises(StoreError, match=r"metrics\.jsonl is not as it was written"):
        find_resume_point(run)


def test_rows_that_were_not_committed_are_dropped_however_damaged(run: RunFolder) -> None:
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write("{}\n[1\nnothing\n")
    assert find_resume_point(run)[1] == []
    run.discard_after(3)
    assert [row["iteration"] for row in run.metrics.read()] == [1, 2, 3]


def test_lost_checkpoints_are_reported_and_old_iterations_kept(run: RunFolder) -> None:
    shutil.rmtree(run.path / "checkpoints" / "0003")
    checkpoint, notes = find_resume_point(run)
    assert checkpoint is not None and checkpoint.iteration == 2
    assert notes == ["no checkpoint has iteration 3, which was played: resuming from iteration 2"]
    shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(StoreError, match="has played 3 iterations, and none of their checkpoints is there"):
        find_resume_point(run)


def test_edited_environment_is_refused(run: RunFolder) -> None:
    path = run.path / "environment.json"
    assert run.reader.environment() == {"commands": []}
    path.write_text(path.read_text().replace("commands", "kommands"))
    with pytest.raises(StoreError, match=r"environment\.json is not as it was written"):
        run.reader.environment()
