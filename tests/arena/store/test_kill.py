"""Invariant 6: a killed run resumes to the same log and the same weights, bit for bit, whenever it was killed."""

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


def command(run: Path) -> list[str | Path]:
    """What a user types after a kill: resume, or the first command again where there is no run yet."""
    return ["resume", run, "--json"] if (run / "config.yaml").exists() else [*TINY, "--out", run]


def go_on(run: Path, scratch: Path) -> CommandResult:
    told = run_arena_child(scratch, *command(run))
    assert told.code == 0, told.err
    return told


def kill_when(run: Path, scratch: Path, moment: Callable[[], bool]) -> bool:
    """Run until the moment, then SIGKILL; whether it came before the end."""
    child = Child(scratch, *command(run))
    child.wait_until(moment)
    child.signal(signal.SIGKILL)
    return child.end().code == KILLED


def begun(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and (path.is_dir() or path.stat().st_size > 0)


def test_the_tiny_run_shows_something(uninterrupted_run: Path, expected: RunTrace) -> None:
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
def test_a_run_killed_in_several_phases_ends_as_the_unbroken(
    tmp_path: Path, expected: RunTrace, phases: list[str]
) -> None:
    run = tmp_path / "run"
    paths = {
        "imitate": "config.yaml",
        "save the imitated weights": "checkpoints/.0000.tmp",
        "play": "log/0001.jsonl",
        "learn": "log/0002.credit.parquet",
        "seal": "log/0002.parquet",
        "commit": f"checkpoints/.{ITERATIONS:04d}.tmp",
    }
    killed = [kill_when(run, tmp_path / "said", begun(run / paths[phase])) for phase in phases]
    assert sum(killed) >= len(killed) - (len(killed) > 2), killed  # the last of all may be too quick for us to see
    go_on(run, tmp_path / "said")
    assert_same(read_trace(run), expected)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, float]:
    """Return the number of durable steps (fsyncs, renames, removals) and the seconds of a whole run."""
    folder = tmp_path_factory.mktemp("measured")
    child = Child(folder, *TINY, "--out", folder / "run", fault=ChildFault(count_steps=folder / "steps"))
    assert child.end().code == 0
    return int((folder / "steps").read_text()), time.monotonic() - child.started_at


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_a_run_killed_between_two_writes_ends_as_the_unbroken(
    tmp_path: Path, measured: tuple[int, float], expected: RunTrace, number: int
) -> None:
    """SIGKILL before a random one of the fsyncs, renames and removals of the whole run."""
    steps, run = measured[0], tmp_path / "run"
    step = random.Random(number).randint(1, steps)
    told = run_arena_child(tmp_path / "said", *command(run), fault=ChildFault(kill_at_step=step))
    assert told.code == KILLED, f"step {step} of {steps}: {told}"
    go_on(run, tmp_path / "said")
    assert_same(read_trace(run), expected)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_a_run_killed_at_a_random_moment_ends_as_the_unbroken(
    tmp_path: Path, measured: tuple[int, float], expected: RunTrace, number: int
) -> None:
    moment = random.Random(number).uniform(0.05, 0.95) * measured[1]
    run = tmp_path / "run"
    while not kill_after(moment, run, tmp_path / "said"):  # the machine is faster now than it was
        shutil.rmtree(run)
        moment *= 0.7
    go_on(run, tmp_path / "said")
    assert_same(read_trace(run), expected)


def kill_after(seconds: float, run: Path, scratch: Path) -> bool:
    child = Child(scratch, *command(run))
    time.sleep(seconds)
    child.signal(signal.SIGKILL)
    return child.end().code == KILLED


@pytest.mark.slow
def test_separate_processes_from_the_shell_end_alike(tmp_path: Path, expected: RunTrace) -> None:
    run, python = tmp_path / "run", [sys.executable, "-m", "arena"]
    first = subprocess.Popen([*python, *TINY, "--out", run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not begun(run / "log" / "0002.jsonl")() and first.poll() is None:
        time.sleep(0.002)
    first.kill()
    first.wait()
    done = subprocess.run([*python, "resume", run], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert_same(read_trace(run), expected)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("file", ["policies/shared/model.safetensors", "manifest.json"])
def test_a_torn_checkpoint_is_skipped_and_told(
    tmp_path: Path, uninterrupted_run: Path, expected: RunTrace, file: str
) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    newest = run / "checkpoints" / f"{ITERATIONS:04d}"
    flip_byte(newest / file)
    told = arena("resume", run, "--json")
    assert told.code == 0, told.err
    name = file.rsplit("/", 1)[-1]
    assert f"checkpoint {newest} is torn" in told.err and name in told.err
    assert told.err.startswith("arena: ") and told.err.count("\n") == 1
    assert_same(read_trace(run), expected)
