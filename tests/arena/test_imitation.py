"""A warm start that is killed goes on where it was kept, and ends with the very weights of one that was not."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import arena.play.imitation
from arena.cli.loop import wait
from arena.store import manifest, warm_start
from arena.store.run import RunFolder
from tests.factories.commands import TINY
from tests.factories.commands import arena as command
from tests.factories.labs import RecordingWatcher, make_experiment, run_lab
from tests.factories.traces import assert_same, flip_byte, read_trace

KILLED_AFTER = """
import os, signal, sys
import arena.play.imitation
from arena.cli.main import run_cli
from arena.store import manifest, warm_start
save, calls = warm_start.save, []

def once_more(run, about, fill):
    calls.append(about["steps"])
    def dies(folder):
        fill(folder)
        if {during} and len(calls) == {times}:
            os.kill(os.getpid(), signal.SIGKILL)
    save(run, about, dies)
    if len(calls) == {times}:
        os.kill(os.getpid(), signal.SIGKILL)

warm_start.save, arena.play.imitation.CHECKPOINT_SECONDS = once_more, 0.0
sys.exit(run_cli())
"""


def kill_in_imitation(run: Path, times: int, during: bool, *more: str) -> None:
    """Begin the tiny run, and kill it as an imitation is kept for so many times, or right after that."""
    script = KILLED_AFTER.format(times=times, during=during)
    words = [sys.executable, "-c", script, *TINY, *more, "--out", str(run)]
    told = subprocess.run(words, capture_output=True, text=True)
    assert told.returncode == -signal.SIGKILL, told.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "during", "kept"), [pytest.param(9, False, 9, marks=pytest.mark.slow), (10, True, 9)]
)
def test_a_run_killed_at_its_imitation_goes_on_there(
    tmp_path: Path, uninterrupted_run: Path, times: int, during: bool, kept: int
) -> None:
    run = tmp_path / "run"
    kill_in_imitation(run, times, during)
    assert not (run / "checkpoints").exists()
    shown = command("show", run)
    assert f"step {kept} of 12 of the imitation by policy 'shared'" in shown.out, shown
    told = command("resume", run, "--json")
    assert told.code == 0, told.err
    assert f"after step {kept} of 12" in told.out + told.err
    assert_same(read_trace(run), read_trace(uninterrupted_run))
    assert not (run / warm_start.FOLDER).exists()


@pytest.mark.slow
def test_a_torn_one_begins_again(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = tmp_path / "run"
    kill_in_imitation(run, 5, False)
    flip_byte(run / warm_start.FOLDER / "policies/shared/model.safetensors")
    told = command("resume", run, "--json")
    assert told.code == 0, told.err
    assert "model.safetensors is not as it was written: the imitation restarts" in told.out + told.err
    assert_same(read_trace(run), read_trace(uninterrupted_run))


@pytest.mark.slow
def test_that_of_a_run_with_another_seed_is_not_gone_on_with(tmp_path: Path, uninterrupted_run: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    kill_in_imitation(run, 1, False)
    kill_in_imitation(other, 2, False, "--seed", "5")
    shutil.rmtree(run / warm_start.FOLDER)
    shutil.copytree(other / warm_start.FOLDER, run / warm_start.FOLDER)
    told = command("resume", run, "--json")
    assert told.code == 0, told.err
    assert "is of a run with other settings: the imitation restarts" in told.out + told.err
    assert_same(read_trace(run), read_trace(uninterrupted_run))


TWO = (
    "iterations=1",
    "policies.other.model=nano-3",
    "policies.other.imitate={scripted: [random], matches: 12, epochs: 2, minibatches: 3, decay: true}",
    "seats.responder={role: nano_responder, policy: other}",
)


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 14])
def test_of_two_that_imitate_the_first_is_not_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    given, keep, kept = make_experiment(*TWO), warm_start.save, list[dict[str, object]]()

    def stopped(run: Path, about: dict[str, object], fill: object) -> None:
        keep(run, about, fill)  # type: ignore[arg-type]
        kept.append(about)
        if len(kept) == times:
            raise KeyboardInterrupt

    whole = run_lab(tmp_path / "whole", given)
    monkeypatch.setattr(arena.lab, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(warm_start, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_lab(tmp_path / "run", given)
    watcher = RecordingWatcher()
    lab = wait(arena.lab.Lab.open(RunFolder.open(tmp_path / "run"), given, watcher))
    wait(lab.run())
    matches = [name for _, name in watcher.phases if "matches of" in name]
    assert len(matches) == (2 if times <= 11 else 1)
    assert_same(read_trace(tmp_path / "run"), read_trace(tmp_path / "whole"))
    assert whole.done == 1


@pytest.mark.slow
def test_what_is_of_another_imitation_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    kill_in_imitation(run, 3, False)
    body = json.loads((run / warm_start.FOLDER / "manifest.json").read_text())["manifest"]
    for change in ({"total": 11}, {"steps": 12}):
        (run / warm_start.FOLDER / "manifest.json").unlink()
        manifest.seal(run / warm_start.FOLDER, {**body, **change})
        told = command("resume", run)
        assert told.code == 2 and "belongs to another imitation" in told.err, told
