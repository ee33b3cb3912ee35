"""Runs whose parts die, hang or are cut off lose no match, count none twice and leave no process behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
QUICKLY = ("--gap", 3, "--set", "scale.patience=20", "--set", "scale.deadline=120")
WRONG = ("lost", "doubled", "wrong", "folder", "orphans", "hung", "unprovoked")


def namespaces() -> bool:
    """Whether this user may make a network and a mount namespace."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "ip", "ss"))):
        return False
    tried = subprocess.run(["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"], capture_output=True)
    return tried.returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not namespaces(), reason="needs Linux, iproute2 and a user who may make namespaces"),
]


def tormented(folder: Path, kinds: str, *options: object) -> dict[str, Any]:
    """What a run went through, and what was found at its end; nothing of that may be wrong."""
    out, count = folder / "faults.json", len(kinds.split(","))
    asked = ["--only", kinds, "--iterations", 6, "--seed", 1, "--out", out, *options]
    command = [sys.executable, "-m", "tests.arena.scale.faults", *map(str, asked)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())["summary"]
    assert found["faults"] == count and not any(found[kind] for kind in WRONG)
    return found


def test_one_process_that_is_killed_stopped_and_has_no_disk_loses_nothing(tmp_path: Path) -> None:
    tormented(tmp_path, "kill driver,stop driver,full disk,slow tool", "--scale", "")


@pytest.mark.parametrize(
    "kinds",
    [
        "kill engine,stop engine",
        "kill rank,stop rank",
        "kill task,stop task,slow tool",
        "kill driver,full disk,drop connections",
    ],
)
def test_a_run_on_several_processes_loses_nothing(tmp_path: Path, kinds: str) -> None:
    tormented(tmp_path, kinds, *QUICKLY)
