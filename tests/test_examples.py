"""Tests of docs/examples: the SLURM script on two simulated nodes, and the KubeRay manifest."""

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.main import get_command

from arena.cli.app import app
from tests.factories.clusters import ROOT

EXAMPLES = ROOT / "docs" / "examples"
SCRIPT = EXAMPLES / "slurm.sh"
COUNT_NODES = (
    "import ray; ray.init('auto', log_to_driver=False, logging_level='ERROR'); print(len(ray.nodes()), 'nodes')"
)


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text())
    return found


def test_manifest_runs_an_existing_command(manifest: dict[str, Any]) -> None:
    words = shlex.split(manifest["spec"]["entrypoint"])
    assert words[:3] == ["arena", "run", "selfplay"]
    command: Any = get_command(app)
    for word in words[1:3]:
        command = command.commands[word]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_manifest_has_the_gpus_of_its_command(manifest: dict[str, Any]) -> None:
    counts = dict(re.findall(r"(trainers|engines)=(\d+)", manifest["spec"]["entrypoint"]))
    assert manifest["spec"]["entrypoint"].count(".gpus=1") == len(counts) == 2
    (group,) = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert limits == requests
    assert group["replicas"] * int(limits["nvidia.com/gpu"]) >= sum(map(int, counts.values()))
    assert int(limits["cpu"]) >= int(limits["nvidia.com/gpu"]), "at least one processor per GPU"


def test_all_pods_of_the_manifest_share_the_runs_and_the_token(manifest: dict[str, Any]) -> None:
    cluster = manifest["spec"]["rayClusterSpec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    for pod in pods:
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["volumeMounts"][0] == {"name": "runs", "mountPath": "/runs"}
        environ = {each["name"]: each for each in container["env"]}
        assert environ["RAY_AUTH_MODE"]["value"] == "token" and "secretKeyRef" in environ["RAY_AUTH_TOKEN"]["valueFrom"]
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1


def test_the_script_reads_as_bash() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, SCRIPT], check=True)


def test_script_without_a_command_prints_its_usage(tmp_path: Path) -> None:
    result = subprocess.run(["bash", SCRIPT], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "usage: sbatch slurm.sh arena ...\n")


class Job:
    """The script as SLURM would start it: both nodes are this machine, and `srun` runs its arguments."""

    def __init__(self, folder: Path, *command: str) -> None:
        for name, text in (
            ("scontrol", "echo here; echo there"),
            ("srun", 'while [[ $1 == --* ]]; do shift; done; [ "$1" = hostname ] && exec echo 127.0.0.1; exec "$@"'),
        ):
            tool = folder / name
            tool.write_text(f"#!/bin/bash\n{text}\n")
            tool.chmod(0o755)
        path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))}
        self._number = secrets.randbelow(10**9)
        slurm = {"SLURM_JOB_ID": str(self._number), "SLURM_JOB_NODELIST": "here,there", "SLURM_CPUS_PER_TASK": "1"}
        environ = {**environment, **slurm, "PATH": path, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            ["bash", SCRIPT, *command], env=environ, cwd=folder, text=True, start_new_session=True,
            stdout=(folder / "out").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._folder = folder

    def read_output(self) -> str:
        return (self._folder / "out").read_text()

    def end(self) -> int:
        """Return the exit code, and check that no process is left after a minute."""
        code = self.process.wait(900)
        _, remaining = psutil.wait_procs(list(find_processes(self._number)), 60)
        for process in remaining:
            process.kill()
        assert not remaining, f"{remaining} go on after the job"
        return code


def find_processes(number: int) -> Iterator[psutil.Process]:
    """Yield the processes of a job, by their environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("SLURM_JOB_ID") == str(number):
                yield process


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    pytest.importorskip("ray")
    yield tmp_path


@pytest.mark.slow
def test_job_has_all_nodes_and_its_commands_exit_code(folder: Path) -> None:
    job = Job(folder, sys.executable, "-c", f"{COUNT_NODES}; raise SystemExit(7)")
    assert job.end() == 7, job.read_output()
    assert "2 nodes" in job.read_output()


@pytest.mark.slow
def test_job_out_of_time_lets_its_command_end(folder: Path) -> None:
    wait_script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('ended well') or 130))"
    )
    job = Job(folder, sys.executable, "-c", f"{wait_script}; print('begun', flush=True); time.sleep(3600)")
    deadline = time.monotonic() + 900
    while "begun" not in job.read_output():
        assert job.process.poll() is None and time.monotonic() < deadline, job.read_output()
        time.sleep(0.1)
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 130, job.read_output()
    assert "ended well" in job.read_output()
