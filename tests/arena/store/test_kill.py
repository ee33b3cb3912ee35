"""Invariant 6: a run killed at any moment resumes to the same log and weights, bit for bit."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories.children import Child, ChildFault, run_arena_child
from tests.factories.commands import ITERATIONS, TINY, CommandResult, arena
from tests.factories.traces import RunTrace, assert_same, flip_byte, read_trace

KILLED = -signal.SIGKILL


@pytest.fixture
def expected(uninterrupted_run: Path) -> RunTrace:
    return read_trace(uninterrupted_run)


def make_command(run: Path) -> list[str | Path]:
    """Return what a user types after a kill: resume, or the first command again if there is no run yet."""
    return ["resume", run, "--json"] if (run / "config.yaml").exists() else [*TINY, "--out", run]


def continue_run(run: Path, scratch: Path) -> CommandResult:
    result = run_arena_child(scratch, *make_command(run))
    assert result.code == 0, result.err
    return result


def kill_when(run: Path, scratch: Path, moment: Callable[[], bool]) -> bool:
    """Run until `moment`, then send SIGKILL; return whether it came before the end."""
    child = Child(scratch, *make_command(run))
    child.wait_until(moment)
    child.signal(signal.SIGKILL)
    return child.end().code == KILLED


def make_start_check(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and (path.is_dir() or path.stat().st_size > 0)


def test_tiny_run_covers_valid_and_invalid_acts(uninterrupted_run: Path, expected: RunTrace) -> None:
    acts = [turn["valid"] for row in expected.matches for turn in row["turns"]]
    assert any(acts) and not all(acts)
    assert len({row["report"]["ended"] for row in expected.matches}) > 1
    assert len({row.advantage for row in expected.credit}) > 3
    weights = {digest for name, digest in expected.files.items() if name.endswith("/model.safetensors")}
    assert len(weights) == 3  # of 0000 and the newest two


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "phases", [["play", "learn"], ["imitate", "save the imitated weights", "play", "learn", "seal", "commit"]]
)
def test_run_killed_in_several_phases_ends_equal(tmp_path: Path, expected: RunTrace, phases: list[str]) -> None:
    run = tmp_path / "run"
    paths = {
        "imitate": "config.yaml",
        "save the imitated weights": "checkpoints/.0000.tmp",
        "play": "log/0001.jsonl",
        "learn": "log/0002.credit.parquet",
        "seal": "log/0002.parquet",
        "commit": f"checkpoints/.{ITERATIONS:04d}.tmp",
    }
    killed = [kill_when(run, tmp_path / "said", make_start_check(run / paths[phase])) for phase in phases]
    assert sum(killed) >= len(killed) - (len(killed) > 2), killed  # the last phase may end before it is seen
    continue_run(run, tmp_path / "said")
    assert_same(read_trace(run), expected)


@pytest.fixture(scope="module")
def run_size(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, float]:
    """Return the number of durable steps (fsyncs, renames, removals) and the seconds of a whole run."""
    folder = tmp_path_factory.mktemp("measured")
    child = Child(folder, *TINY, "--out", folder / "run", fault=ChildFault(count_steps=folder / "steps"))
    assert child.end().code == 0
    return int((folder / "steps").read_text()), time.monotonic() - child.started_at


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_run_killed_between_two_writes_ends_equal(
    tmp_path: Path, run_size: tuple[int, float], expected: RunTrace, number: int
) -> None:
    """Send SIGKILL before a random fsync, rename or removal of the run."""
    steps, run = run_size[0], tmp_path / "run"
    step = random.Random(number).randint(1, steps)
    result = run_arena_child(tmp_path / "said", *make_command(run), fault=ChildFault(kill_at_step=step))
    assert result.code == KILLED, f"step {step} of {steps}: {result}"
    continue_run(run, tmp_path / "said")
    assert_same(read_trace(run), expected)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_run_killed_at_a_random_moment_ends_equal(
    tmp_path: Path, run_size: tuple[int, float], expected: RunTrace, number: int
) -> None:
    moment = random.Random(number).uniform(0.05, 0.95) * run_size[1]
    run = tmp_path / "run"
    while not kill_after(moment, run, tmp_path / "said"):  # the run ended before the kill
        shutil.rmtree(run)
        moment *= 0.7
    continue_run(run, tmp_path / "said")
    assert_same(read_trace(run), expected)


def kill_after(seconds: float, run: Path, scratch: Path) -> bool:
    child = Child(scratch, *make_command(run))
    time.sleep(seconds)
    child.signal(signal.SIGKILL)
    return child.end().code == KILLED


@pytest.mark.slow
def test_shell_processes_resume_equal(tmp_path: Path, expected: RunTrace) -> None:
    run, python = tmp_path / "run", [sys.executable, "-m", "arena"]
    first = subprocess.Popen([*python, *TINY, "--out", run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not make_start_check(run / "log" / "0002.jsonl")() and first.poll() is None:
        time.sleep(0.002)
    first.kill()
    first.wait()
    result = subprocess.run([*python, "resume", run], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert_same(read_trace(run), expected)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("file", ["policies/shared/model.safetensors", "manifest.json"])
def test_torn_checkpoint_is_skipped_with_a_note(
    tmp_path: Path, uninterrupted_run: Path, expected: RunTrace, file: str
) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    newest = run / "checkpoints" / f"{ITERATIONS:04d}"
    flip_byte(newest / file)
    result = arena("resume", run, "--json")
    assert result.code == 0, result.err
    name = file.rsplit("/", 1)[-1]
    assert f"checkpoint {newest} is damaged" in result.err and name in result.err
    assert result.err.startswith("arena: ") and result.err.count("\n") == 1
    assert_same(read_trace(run), expected)
