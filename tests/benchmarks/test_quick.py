"""All benchmarks run with `--quick`."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
NOT_HERE = {"against_trl", "against_vllm", "agreement", "engines", "foreign", "others"}
"""They need environments of their own."""
QUICK = {file.stem for file in FOLDER.glob("*.py") if '"--quick", action' in file.read_text("utf-8")} - NOT_HERE


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_small_round_works(name: str) -> None:
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--quick"]
    process = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]
