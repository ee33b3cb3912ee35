"""Benchmarks still work: each with `--quick`, small; git ignores what that writes."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_HERE = {"against_trl", "against_vllm", "agreement", "engines", "one_iteration"}
"""In environments of their own, and a part of speed.py."""
SCRIPTS = (file for file in HERE.glob("*.py") if not file.stem.startswith("test_"))
QUICK = {file.stem for file in SCRIPTS if '"--quick", action' in file.read_text("utf-8")} - NOT_HERE


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_small_round_works(name: str) -> None:
    command = [sys.executable, str(HERE / f"{name}.py"), "--quick"]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
