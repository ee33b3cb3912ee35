"""`arena study --on-ray`: runs are Ray tasks that survive killed workers and end with the study."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from arena.store.locks import is_in_use
from arena.store.reader import RunReader
from tests.factories.clusters import Cluster, make_cluster
from tests.factories.tiny_study import ITERATIONS, write_study

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with make_cluster() as cluster_nodes:
        cluster_nodes.start(cpus=1)
        yield cluster_nodes


class Study:
    """`arena study --on-ray` in a process of its own."""

    def __init__(self, cluster: Cluster, folder: Path, iterations: int = ITERATIONS) -> None:
        self.out, self._folder = folder / "study", folder
        file = write_study(folder, warm=[])
        file.write_text(file.read_text().replace(f"iterations: {ITERATIONS}", f"iterations: {iterations}"))
        command = [sys.executable, "-P", "-m", "arena", "study", str(file), "--seeds", "1", "--json"]
        command += ["--on-ray", cluster.address, "--out", str(self.out)]
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(command, env=cluster.environ, stdout=out, stderr=err, cwd=folder)

    def wait_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 900
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, self.read_output()
            time.sleep(0.05)

    def read_output(self) -> str:
        return (self._folder / "err").read_text() + (self._folder / "out").read_text()

    def end(self) -> int:
        try:
            return self.process.wait(1200)
        finally:
            self.process.kill()


def find_worker(cluster: Cluster, run: Path) -> psutil.Process | None:
    """Return the Ray worker process that runs this run, if any."""
    for process in cluster.processes():
        try:
            if str(run) in process.cmdline() and (parent := process.parent()):
                return parent
        except psutil.NoSuchProcess:
            continue
    return None


def test_killed_worker_loses_nothing_committed(cluster: Cluster, tmp_path: Path) -> None:
    study = Study(cluster, tmp_path)
    first = study.out / "mars-0"
    study.wait_until((first / "checkpoints" / "0001").exists)
    worker = find_worker(cluster, first)
    assert worker
    worker.send_signal(signal.SIGKILL)
    assert study.end() == 0, study.read_output()
    data = json.loads((tmp_path / "out").read_text())
    assert data["missing"] == [] and len(data["runs"]) == 2
    assert "resuming" in (study.out / "mars-0.log").read_text()
    for run in ("mars-0", "zero-0"):
        reader = RunReader(study.out / run)
        assert [row["iteration"] for row in reader.metrics()] == list(range(1, ITERATIONS + 1))
        assert len({row["id"] for row in reader.matches()}) == len(list(reader.matches())) == 4 * ITERATIONS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_runs_end_with_their_study_and_the_same_command_continues(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    study = Study(cluster, tmp_path, iterations=1000)
    first = study.out / "mars-0"
    study.wait_until((first / "checkpoints" / "0001").exists)
    end_study(cluster, study, number)
    done = len(RunReader(first).metrics())
    assert 0 < done < 1000
    if number == signal.SIGINT:
        assert (
            "interrupted; committed iterations are safe" in study.read_output()
            and "Traceback" not in study.read_output()
        )
        again = Study(cluster, tmp_path, iterations=1000)
        again.wait_until(lambda: len(RunReader(first).metrics()) > done)
        assert RunReader(first).environment()["commands"][1:], "the run was not resumed"
        end_study(cluster, again, signal.SIGTERM)


def end_study(cluster: Cluster, study: Study, number: signal.Signals) -> None:
    """End the study with a signal, and wait until its run has ended."""
    os.kill(study.process.pid, number)
    assert study.end() in (130, 143, -signal.SIGKILL), study.read_output()
    deadline = time.monotonic() + 400
    while is_in_use(study.out / "mars-0") or find_worker(cluster, study.out / "mars-0"):
        assert time.monotonic() < deadline, "the run still plays"
        time.sleep(0.1)


def test_missing_cluster_gives_one_line(tmp_path: Path) -> None:
    with make_cluster() as cluster:
        study = Study(cluster, tmp_path)
        assert study.end() == 2
    (line,) = study.read_output().splitlines()[-1:]
    assert line.startswith(f"arena: --on-ray: no Ray cluster answers at {cluster.address}"), line
    assert "Traceback" not in study.read_output()
    assert not list(tmp_path.glob("study/*-0"))
