"""A warm start that is killed resumes at its last checkpoint and ends with the same weights."""

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
from tests.factories.commands import TINY
from tests.factories.commands import arena as command
from tests.factories.labs import RecordingWatcher, make_experiment, reopen_lab, run_lab
from tests.factories.traces import assert_same_runs, flip_byte

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
    """Start the tiny run and kill it during, or right after, the `times`-th save of an imitation."""
    script = KILLED_AFTER.format(times=times, during=during)
    words = [sys.executable, "-c", script, *TINY, *more, "--out", str(run)]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "during", "saved_step"), [pytest.param(9, False, 9, marks=pytest.mark.slow), (10, True, 9)]
)
def test_run_killed_during_imitation_resumes_there(
    tmp_path: Path, uninterrupted_run: Path, times: int, during: bool, saved_step: int
) -> None:
    run = tmp_path / "run"
    kill_in_imitation(run, times, during)
    assert not (run / "checkpoints").exists()
    shown = command("show", run)
    assert f"step {saved_step} of 12 of the imitation by policy 'shared'" in shown.out, shown
    result = command("resume", run, "--json")
    assert result.code == 0, result.err
    assert f"after step {saved_step} of 12" in result.out + result.err
    assert_same_runs(run, uninterrupted_run)
    assert not (run / warm_start.FOLDER).exists()


@pytest.mark.slow
def test_torn_imitation_restarts(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = tmp_path / "run"
    kill_in_imitation(run, 5, False)
    flip_byte(run / warm_start.FOLDER / "policies/shared/model.safetensors")
    result = command("resume", run, "--json")
    assert result.code == 0, result.err
    assert "model.safetensors is not as it was written: the imitation restarts" in result.out + result.err
    assert_same_runs(run, uninterrupted_run)


@pytest.mark.slow
def test_imitation_of_another_seed_is_not_resumed(tmp_path: Path, uninterrupted_run: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    kill_in_imitation(run, 1, False)
    kill_in_imitation(other, 2, False, "--seed", "5")
    shutil.rmtree(run / warm_start.FOLDER)
    shutil.copytree(other / warm_start.FOLDER, run / warm_start.FOLDER)
    result = command("resume", run, "--json")
    assert result.code == 0, result.err
    assert "is of a run with other settings: the imitation restarts" in result.out + result.err
    assert_same_runs(run, uninterrupted_run)


TWO_POLICIES = (
    "iterations=1",
    "policies.other.model=nano-3",
    "policies.other.imitate={scripted: [random], matches: 12, epochs: 2, minibatches: 3, decay: true}",
    "seats.responder={role: nano_responder, policy: other}",
)


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 14])
def test_finished_imitation_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    config, save, saves = make_experiment(*TWO_POLICIES), warm_start.save, list[dict[str, object]]()

    def save_and_stop(run: Path, about: dict[str, object], fill: object) -> None:
        save(run, about, fill)  # type: ignore[arg-type]
        saves.append(about)
        if len(saves) == times:
            raise KeyboardInterrupt

    uninterrupted = run_lab(tmp_path / "whole", config)
    monkeypatch.setattr(arena.play.imitation, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(warm_start, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        run_lab(tmp_path / "run", config)
    watcher = RecordingWatcher()
    wait(reopen_lab(tmp_path / "run", config, watcher).run())
    matches = [name for _, name in watcher.phases if "matches of" in name]
    assert len(matches) == (2 if times <= 11 else 1)
    assert_same_runs(tmp_path / "run", tmp_path / "whole")
    assert uninterrupted.done == 1


@pytest.mark.slow
def test_manifest_of_another_imitation_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    kill_in_imitation(run, 3, False)
    body = json.loads((run / warm_start.FOLDER / "manifest.json").read_text())["manifest"]
    for change in ({"total": 11}, {"steps": 12}):
        (run / warm_start.FOLDER / "manifest.json").unlink()
        manifest.seal(run / warm_start.FOLDER, {**body, **change})
        result = command("resume", run)
        assert result.code == 2 and "belongs to another imitation" in result.err, result
