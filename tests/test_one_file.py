"""The one-file self-play loop: it runs, learns, and stays short enough to read."""

import re
import subprocess
import sys

import pytest

from tests.factories.clusters import ROOT

SCRIPT = ROOT / "examples" / "selfplay_in_one_file.py"


def run_script(*arguments: str) -> list[float]:
    """Run the example as a reader would and return the win rates that it prints."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return [float(rate) for rate in re.findall(r"win rate ([01]\.\d\d)", done.stdout)]


def test_the_loop_is_at_most_250_lines():
    assert len(SCRIPT.read_text("utf-8").splitlines()) <= 250


def test_the_loop_runs():
    assert len(run_script("--iterations", "1")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loop_learns(seed: int):
    curve = run_script("--seed", str(seed))
    assert curve[-1] > curve[0] + 0.1
