"""Benchmarks still work: each with `--quick`, small; git ignores what that writes."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
IN_OTHER_ENVIRONMENTS = {"against_trl", "against_vllm", "agreement", "engines"}
SCRIPTS = (file for file in HERE.glob("*.py") if not file.stem.startswith("test_"))
QUICK = {file.stem for file in SCRIPTS if ".py --quick  " in file.read_text("utf-8")}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK - IN_OTHER_ENVIRONMENTS))
def test_a_small_round_works(name: str) -> None:
    command = [sys.executable, str(HERE / f"{name}.py"), "--quick"]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
