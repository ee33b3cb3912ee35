"""The one-file self-play loop: it runs, learns, and stays short enough to read."""

import asyncio
import importlib.util
import re
import subprocess
import sys

import pytest

from tests.factories.clusters import ROOT

SCRIPT = ROOT / "examples" / "selfplay_in_one_file.py"


def test_the_loop_runs(monkeypatch: pytest.MonkeyPatch):
    """With eight matches at a time instead of hundreds."""
    spec = importlib.util.spec_from_file_location("selfplay_in_one_file", SCRIPT)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, example)
    spec.loader.exec_module(example)
    play = example.play_matches
    monkeypatch.setattr(example, "play_matches", lambda policy, writers, step, n: play(policy, writers, step, 8))
    (rate,) = asyncio.run(example.train(iterations=1))
    assert 0 <= rate <= 1


def run_script(*arguments: str) -> list[float]:
    """Run the example as a reader would and return the win rates that it prints."""
    result = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    return [float(rate) for rate in re.findall(r"win rate ([01]\.\d\d)", result.stdout)]


def test_the_loop_is_at_most_250_lines():
    assert len(SCRIPT.read_text("utf-8").splitlines()) <= 250


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loop_learns(seed: int):
    curve = run_script("--seed", str(seed))
    assert curve[-1] > curve[0] + 0.1
