"""Runs whose parts die, hang or are cut off lose no match, count none twice and leave no process behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HARNESS = Path(__file__).parents[3] / "benchmarks" / "faults.py"
WRONG = ("lost", "doubled", "wrong", "folder", "orphans", "hung", "unprovoked")


def namespaces() -> bool:
    """Whether this user may make a network and a mount namespace."""
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "ip", "ss"))):
        return False
    return subprocess.run(["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not namespaces(), reason="needs Linux, iproute2 and a user who may make namespaces"),
]


def tormented(folder: Path, kinds: str, *options: object) -> dict[str, Any]:
    """What a run went through, and what was found at its end; nothing of that may be wrong."""
    out, count = folder / "faults.json", len(kinds.split(","))
    asked = ["--only", kinds, "--faults", count, "--iterations", 6, "--seed", 1, "--out", out, *options]
    command = [sys.executable, HARNESS, *map(str, asked)]
    # a /tmp of its own hides this folder; its parent process sees the same file
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "ARENA_FAULTS_OUT": str(out)})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())["summary"]
    assert found["faults"] == count
    return found
