"""`arena study --on-ray`: runs as Ray tasks, whose workers are killed, and which end with the study."""

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
    with make_cluster() as made:
        made.start(cpus=1)
        yield made


class Study:
    """`arena study --on-ray`, a process of its own."""

    def __init__(self, cluster: Cluster, folder: Path, iterations: int = ITERATIONS) -> None:
        self.out, self._folder = folder / "study", folder
        file = write_study(folder, warm=[])
        file.write_text(file.read_text().replace(f"iterations: {ITERATIONS}", f"iterations: {iterations}"))
        command = [sys.executable, "-P", "-m", "arena", "study", str(file), "--seeds", "1", "--json"]
        command += ["--on-ray", cluster.address, "--out", str(self.out)]
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(command, env=cluster.environ, stdout=out, stderr=err, cwd=folder)

    def until(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + 900
        while not what():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        return (self._folder / "err").read_text() + (self._folder / "out").read_text()

    def end(self) -> int:
        try:
            return self.process.wait(1200)
        finally:
            self.process.kill()


def worker_of(cluster: Cluster, run: Path) -> psutil.Process | None:
    """The Ray worker below which a run goes on."""
    for process in cluster.processes():
        try:
            if str(run) in process.cmdline() and (parent := process.parent()):
                return parent
        except psutil.NoSuchProcess:
            continue
    return None


def test_a_killed_worker_costs_its_run_nothing_that_was_committed(cluster: Cluster, tmp_path: Path) -> None:
    study = Study(cluster, tmp_path)
    first = study.out / "mars-0"
    study.until((first / "checkpoints" / "0001").exists)
    worker = worker_of(cluster, first)
    assert worker
    worker.send_signal(signal.SIGKILL)
    assert study.end() == 0, study.said()
    data = json.loads((tmp_path / "out").read_text())
    assert data["missing"] == [] and len(data["runs"]) == 2
    assert "it is resumed" in (study.out / "mars-0.log").read_text()
    for run in ("mars-0", "zero-0"):
        reader = RunReader(study.out / run)
        assert [row["iteration"] for row in reader.metrics()] == list(range(1, ITERATIONS + 1))
        assert len({row["id"] for row in reader.matches()}) == len(list(reader.matches())) == 4 * ITERATIONS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_runs_end_with_their_study_and_the_same_command_goes_on(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    study = Study(cluster, tmp_path, iterations=1000)
    first = study.out / "mars-0"
    study.until((first / "checkpoints" / "0001").exists)
    ended(cluster, study, number)
    done = len(RunReader(first).metrics())
    assert 0 < done < 1000
    if number == signal.SIGINT:
        assert "interrupted; committed iterations are safe" in study.said() and "Traceback" not in study.said()
        again = Study(cluster, tmp_path, iterations=1000)
        again.until(lambda: len(RunReader(first).metrics()) > done)
        assert RunReader(first).environment()["commands"][1:], "it was gone on with"
        ended(cluster, again, signal.SIGTERM)


def ended(cluster: Cluster, study: Study, number: signal.Signals) -> None:
    """End the study, and wait until its run has ended, too."""
    os.kill(study.process.pid, number)
    assert study.end() in (130, 143, -signal.SIGKILL), study.said()
    deadline = time.monotonic() + 400
    while is_in_use(study.out / "mars-0") or worker_of(cluster, study.out / "mars-0"):
        assert time.monotonic() < deadline, "it plays on"
        time.sleep(0.1)


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with make_cluster() as none:
        study = Study(none, tmp_path)
        assert study.end() == 2
    (line,) = study.said().splitlines()[-1:]
    assert line.startswith(f"arena: --on-ray: no Ray cluster answers at {none.address}"), line
    assert "Traceback" not in study.said()
    assert not list(tmp_path.glob("study/*-0"))
