"""Whole runs from the command line on clusters of their own: as many matches as one process, any layout, no orphans."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arena.store.run import RunFolder
from tests.arena.scale.command_runs import LIMIT, ScaledCommand, count_finished_matches, count_iterations
from tests.factories.commands import ITERATIONS, NO_IMITATION, TINY

pytest.importorskip("ray")

BOTH = ["--scale", "trainers=2,engines=2"]


def list_versions(folder: Path) -> list[set[int]]:
    """Return the policy versions that wrote each iteration's turns."""
    played: dict[int, set[int]] = {}
    for row in RunFolder.open(folder).reader.matches():
        played.setdefault(row["iteration"], set()).update(turn["version"] for turn in row["turns"])
    return [played[iteration] for iteration in sorted(played)]


def test_run_on_one_rank_and_one_engine(tmp_path: Path) -> None:
    """The only test of a scaled run that is not slow: it fails if Ray, a rank or an engine does not start."""
    code, stderr = ScaledCommand(
        "one", *TINY, "--scale", "trainers=1,engines=1", "--iterations", 1, folder=tmp_path
    ).wait_for_end()
    assert code == 0 and count_iterations(tmp_path / "runs" / "latest") == 1, stderr


@pytest.mark.slow
def test_scaled_run_plays_as_many_matches_as_one_process(uninterrupted_run: Path, tmp_path: Path) -> None:
    """Uses the default folder, a relative path, although Ray's processes work in another folder."""
    run = tmp_path / "runs" / "latest"
    code, stderr = ScaledCommand("smoke", *TINY, *BOTH, folder=tmp_path).wait_for_end()
    lines = stderr.splitlines()
    assert code == 0 and all("4 processors are requested" in line for line in lines), stderr
    assert (
        count_finished_matches(run) == count_finished_matches(uninterrupted_run) and count_iterations(run) == ITERATIONS
    )
    assert list_versions(run) == list_versions(uninterrupted_run)


@pytest.mark.slow
def test_run_resumes_under_any_layout(tmp_path: Path) -> None:
    """Two ranks and engines, one of each, two again, one process; environment.json records each change."""
    run, league = tmp_path / "runs" / "latest", "league={opponents: [{play: past, lag: 1}], pool: {every: 1, keep: 4}}"
    assert ScaledCommand("2", *TINY, *BOTH, "--set", league, "--iterations", 1, folder=tmp_path).wait_for_end()[0] == 0
    for iterations, scale in enumerate(("trainers=1,engines=1", "trainers=2,engines=2", "none"), 2):
        arguments = "resume", "runs/latest", "--json", "--iterations", iterations, "--scale", scale
        code, stderr = ScaledCommand(scale, *arguments, folder=tmp_path).wait_for_end()
        assert code == 0 and f"from here on iterations ({iterations - 1} → {iterations})" in stderr, stderr
    assert count_finished_matches(run) == Counter(dict.fromkeys(range(1, 5), 4))
    commands: list[dict[str, Any]] = json.loads((run / "environment.json").read_text())["commands"]
    assert [command["changed"].get("scale.trainers") for command in commands[1:]] == [[2, 1], [1, 2], [2, None]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_driver(number: signal.Signals, tmp_path: Path) -> None:
    """Also, all processes listen on loopback only, and other users cannot enter the sockets' folder."""
    run, temporary = tmp_path / "run", Path(tempfile.mkdtemp(prefix="of-tests-", dir="/tmp"))  # as long as fits
    arguments = *TINY, *NO_IMITATION, "--iterations", 99, "--scale", "engines=1", "--out", run
    command = ScaledCommand(number.name, *arguments, TMPDIR=str(temporary))
    command.wait_for_iterations(1, run)
    assert command.list_processes("ray::EngineHost") and command.list_processes("ray::Rank")
    listening = {
        s.laddr.ip
        for process in command.list_processes()
        for s in process.net_connections("inet")
        if s.status == "LISTEN"
    }
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    (folder,) = temporary.glob("arena-ray-*")
    assert folder.stat().st_mode & 0o077 == 0
    command.process.send_signal(number)
    code, stderr = command.wait_for_end()
    assert not list(temporary.glob("arena-ray-*"))
    shutil.rmtree(temporary)
    if number is signal.SIGKILL:
        assert code == -signal.SIGKILL
        return
    assert code == 128 + number and stderr.count("\n") <= 2 and f"arena resume {run} continues" in stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "message"), [("ray::EngineHost", "restarting it (1 of"), ("ray::Rank", "restarting after")]
)
def test_run_survives_a_killed_process(title: str, message: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ScaledCommand(title, *TINY, *NO_IMITATION, *BOTH, "--set", "play.matches=8", "--out", run)
    command.wait_for_iterations(1, run)
    command.list_processes(title)[0].send_signal(signal.SIGKILL)
    code, stderr = command.wait_for_end()
    assert code == 0 and message in stderr, stderr
    assert count_finished_matches(run) == Counter(dict.fromkeys(range(1, ITERATIONS + 1), 8))


@pytest.mark.slow
def test_doctor_checks_nodes_and_capacity() -> None:
    argv = [sys.executable, "-P", "-m", "arena", "doctor", "--json", "--scale"]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    result = subprocess.run([*argv, "trainers=2,engines=2"], env=environ, capture_output=True, text=True, timeout=LIMIT)
    findings = json.loads(result.stdout)
    assert result.returncode == 0 and result.stderr == "", result
    assert [one["what"] for one in findings] == ["cluster", "node 127.0.0.1", "room"] and all(
        one["ok"] for one in findings
    )
    assert "4 processors" in findings[1]["found"] and "torch" in findings[1]["found"]
    result = subprocess.run([*argv, "address=127.0.0.1:9"], env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert result.returncode == 1 and "no Ray cluster answers at 127.0.0.1:9" in json.loads(result.stdout)[0]["found"]
