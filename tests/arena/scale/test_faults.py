"""Runs whose parts die, hang or are cut off lose or double no match and leave no process behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FAST_SETTINGS = ("--gap", 3, "--set", "scale.patience=20", "--set", "scale.deadline=120")
WRONG = ("lost", "doubled", "wrong", "folder", "orphans", "hung", "unprovoked")


def can_make_namespaces() -> bool:
    """Return whether this user may make a network and a mount namespace."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "ip", "ss"))):
        return False
    result = subprocess.run(["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"], capture_output=True)
    return result.returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs Linux, iproute2 and a user who may make namespaces"),
]


def run_campaign(folder: Path, kinds: str, *options: object) -> dict[str, Any]:
    """Run the fault campaign with these kinds, check that nothing was wrong, and return its summary."""
    out, count = folder / "faults.json", len(kinds.split(","))
    arguments = ["--only", kinds, "--iterations", 6, "--seed", 1, "--out", out, *options]
    command = [sys.executable, "-m", "tests.arena.scale.faults", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    summary: dict[str, Any] = json.loads(out.read_text())["summary"]
    assert summary["faults"] == count and not any(summary[kind] for kind in WRONG)
    return summary


def test_single_process_run_loses_nothing(tmp_path: Path) -> None:
    run_campaign(tmp_path, "kill driver,stop driver,full disk,slow tool", "--scale", "")


@pytest.mark.parametrize(
    "kinds",
    [
        "kill engine,stop engine",
        "kill rank,stop rank",
        "kill task,stop task,slow tool",
        "kill driver,full disk,drop connections",
    ],
)
def test_scaled_run_loses_nothing(tmp_path: Path, kinds: str) -> None:
    run_campaign(tmp_path, kinds, *FAST_SETTINGS)
