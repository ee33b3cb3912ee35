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
from tests.arena.scale.command_runs import LIMIT, Scaled, done, finished
from tests.factories.commands import ITERATIONS, NO_IMITATION, TINY

pytest.importorskip("ray")

BOTH = ["--scale", "trainers=2,engines=2"]


def versions(folder: Path) -> list[set[int]]:
    """The versions of the policy that wrote each iteration's turns."""
    played: dict[int, set[int]] = {}
    for row in RunFolder.open(folder).log.rows():
        played.setdefault(row["iteration"], set()).update(turn["version"] for turn in row["turns"])
    return [played[iteration] for iteration in sorted(played)]


def test_a_run_on_one_rank_and_one_engine_ends(tmp_path: Path) -> None:
    """The only test of a scaled run that is not slow: it fails if Ray, a rank or an engine does not start."""
    code, said = Scaled("one", *TINY, "--scale", "trainers=1,engines=1", "--iterations", 1, folder=tmp_path).end()
    assert code == 0 and done(tmp_path / "runs" / "latest") == 1, said


@pytest.mark.slow
def test_two_ranks_and_two_engines_play_as_many_matches_as_one_process(uninterrupted_run: Path, tmp_path: Path) -> None:
    """In the default folder, which is relative: Ray's processes work elsewhere."""
    run = tmp_path / "runs" / "latest"
    code, said = Scaled("smoke", *TINY, *BOTH, folder=tmp_path).end()
    lines = said.splitlines()
    assert code == 0 and all("4 processors are requested" in line for line in lines), said
    assert finished(run) == finished(uninterrupted_run) and done(run) == ITERATIONS
    assert versions(run) == versions(uninterrupted_run)


@pytest.mark.slow
def test_a_run_goes_on_under_any_layout(tmp_path: Path) -> None:
    """Two ranks and engines, one of each, two again, one process; the environment says when what changed."""
    run, league = tmp_path / "runs" / "latest", "league={opponents: [{play: past, lag: 1}], pool: {every: 1, keep: 4}}"
    assert Scaled("2", *TINY, *BOTH, "--set", league, "--iterations", 1, folder=tmp_path).end()[0] == 0
    for iterations, asked in enumerate(("trainers=1,engines=1", "trainers=2,engines=2", "none"), 2):
        words = "resume", "runs/latest", "--json", "--iterations", iterations, "--scale", asked
        code, said = Scaled(asked, *words, folder=tmp_path).end()
        assert code == 0 and f"from here on iterations ({iterations - 1} → {iterations})" in said, said
    assert finished(run) == Counter(dict.fromkeys(range(1, 5), 4))
    commands: list[dict[str, Any]] = json.loads((run / "environment.json").read_text())["commands"]
    assert [command["changed"].get("scale.trainers") for command in commands[1:]] == [[2, 1], [1, 2], [2, None]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_driver(number: signal.Signals, tmp_path: Path) -> None:
    """Nor is anybody else let in: all listen on loopback, and other users may not enter the folder of the sockets."""
    run, temporary = tmp_path / "run", Path(tempfile.mkdtemp(prefix="of-tests-", dir="/tmp"))  # as long as fits
    words = *TINY, *NO_IMITATION, "--iterations", 99, "--scale", "engines=1", "--out", run
    begun = Scaled(number.name, *words, TMPDIR=str(temporary))
    begun.until(1, run)
    assert begun.family("ray::EngineHost") and begun.family("ray::Rank")
    listening = {s.laddr.ip for one in begun.family() for s in one.net_connections("inet") if s.status == "LISTEN"}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    (folder,) = temporary.glob("arena-ray-*")
    assert folder.stat().st_mode & 0o077 == 0
    begun.process.send_signal(number)
    code, said = begun.end()
    assert not list(temporary.glob("arena-ray-*"))
    shutil.rmtree(temporary)
    if number is signal.SIGKILL:
        assert code == -signal.SIGKILL
        return
    assert code == 128 + number and said.count("\n") <= 2 and f"arena resume {run} continues" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "said"), [("ray::EngineHost", "started again (1 of"), ("ray::Rank", "restarting after")]
)
def test_a_run_goes_on_when_one_of_its_processes_is_killed(title: str, said: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun = Scaled(title, *TINY, *NO_IMITATION, *BOTH, "--set", "play.matches=8", "--out", run)
    begun.until(1, run)
    begun.family(title)[0].send_signal(signal.SIGKILL)
    code, told = begun.end()
    assert code == 0 and said in told, told
    assert finished(run) == Counter(dict.fromkeys(range(1, ITERATIONS + 1), 8))


@pytest.mark.slow
def test_doctor_looks_at_the_nodes_and_at_the_room_of_a_cluster() -> None:
    argv = [sys.executable, "-P", "-m", "arena", "doctor", "--json", "--scale"]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    told = subprocess.run([*argv, "trainers=2,engines=2"], env=environ, capture_output=True, text=True, timeout=LIMIT)
    found = json.loads(told.stdout)
    assert told.returncode == 0 and told.stderr == "", told
    assert [one["what"] for one in found] == ["cluster", "node 127.0.0.1", "room"] and all(one["ok"] for one in found)
    assert "4 processors" in found[1]["found"] and "torch" in found[1]["found"]
    told = subprocess.run([*argv, "address=127.0.0.1:9"], env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert told.returncode == 1 and "no Ray cluster answers at 127.0.0.1:9" in json.loads(told.stdout)[0]["found"]
