"""`arena sweep` as a user types it: a whole sweep, kills, edits and refusals."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from arena.store.reader import RunReader
from tests.factories.children import Child
from tests.factories.commands import SETTINGS, arena, get_refusal

FIXED = [part for setting in (*SETTINGS, "iterations=60") for part in ("--set", setting)]
GRID = ["--set", "learn.lr=1e-4,3e-4"]


@pytest.mark.slow
def test_same_command_continues_a_killed_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["sweep", "negotiation-nano", *FIXED, *GRID, "--seeds", "1", "--jobs", "1", "--out", folder, "--json"]
    child = Child(tmp_path / "first", *words)
    assert child.wait_until(lambda: (folder / "setting-1-1000" / "checkpoints" / "0001").exists())
    assert f"{folder} is in use by process {child.process.pid}" == get_refusal(*words)
    child.signal(signal.SIGKILL)
    assert child.end().code == -signal.SIGKILL
    result = Child(tmp_path / "second", *words).end(400)
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert data == json.loads((folder / "sweep.json").read_text())
    assert not (folder / "study.json").exists()
    assert RunReader(folder / "setting-1-1000").environment()["commands"][1:], (
        "the run was restarted instead of resumed"
    )
    shared = yaml.safe_load(RunReader(folder / "setting-2-1000").config())["policies"]["shared"]
    assert shared["imitate"] is None and "setting-1-1000/checkpoints/0000" in shared["model"], "imitation is shared"
    assert sorted(setting["set"] for setting in data["ranking"]) == [["learn.lr=1e-4"], ["learn.lr=3e-4"]]
    assert data["verdict"]["verdict"] == "not judged" and data["missing"] == []
    for setting in data["ranking"]:
        (row, *_) = [run for run in data["runs"] if run["arm"] == setting["name"]]
        assert setting["seeds"] == {"1000": pytest.approx(sum(row["curve"][-5:]) / len(row["curve"][-5:]))}
    began = time.monotonic()
    again = arena(*words[:-1], "--redraw")
    assert again.code == 0 and "learn.lr=3e-4" in again.out and "for tuning on seed 1000, no verdict" in again.out
    assert time.monotonic() - began < 30, "finished runs were repeated"
    data["runs"][0]["curve"] = [9.0] * 2
    (folder / "sweep.json").write_text(json.dumps(data))
    assert "sweep.json is not as it was written: restore it from a copy" in get_refusal(*words)


def test_refusals_create_no_folder(tmp_path: Path) -> None:
    out = ["--out", tmp_path / "sweep"]
    assert "no values to try" in get_refusal("sweep", "negotiation-nano", *out)
    assert "unknown recipe 'negotiation-nan' — did you mean" in get_refusal("sweep", "negotiation-nan", *GRID, *out)
    line = get_refusal("sweep", "negotiation-nano", "--set", "learn.lrr=1,2", *out)
    assert "learn.lrr: unknown field — did you mean 'lr'?" in line
    grid = [part for n in range(9) for part in ("--set", f"policies.p{n}.lora=0,1,2,3,4,5,6,7,8,9")]
    line = get_refusal("sweep", "negotiation-nano", *grid, "--seeds", "1", *out)
    assert line.startswith("1000000000 settings × 1 seeds are 1000000000 runs, more than 200: try fewer values")
    assert "6 runs, more than 5" in get_refusal("sweep", "negotiation-nano", *GRID, "--most", "5", *out)
    assert "--redraw: there is no sweep in" in get_refusal("sweep", "negotiation-nano", *GRID, "--redraw", *out)
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.txt").write_text("mine")
    line = arena("sweep", "negotiation-nano", *GRID, *out).err.splitlines()[-1]
    assert "exists and is no folder of a study or sweep" in line
    assert [file.name for file in (tmp_path / "sweep").iterdir()] == ["mine.txt"]
