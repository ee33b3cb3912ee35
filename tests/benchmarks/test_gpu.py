"""`make gpu` on the CPU: it completes with all packages and with few, and parts fail independently."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plan
import pytest
import run
import torch
from sheet import Sheet
from size import SIZES

MISSING = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec


@staticmethod
def without(name, *more, **named):
    return None if name.partition(".")[0] in {names} else found(name, *more, **named)


PathFinder.find_spec = without
"""


def fail(error: Exception) -> Any:
    raise error


def test_failing_item_leaves_others_running(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "part.json", time.time() + 60.0)
    sheet.attempt("missing", lambda: fail(ModuleNotFoundError("No module named 'deepspeed'")))
    sheet.attempt("wrong", lambda: fail(ValueError("two\nlines")))
    sheet.attempt("right", lambda: sheet.claim("right", "1", True))
    outcomes = [(line["claim"], line["verdict"]) for line in json.loads((tmp_path / "part.json").read_text())["claims"]]
    assert outcomes == [("missing", "skipped"), ("wrong", "FAILED"), ("right", "ok")]
    assert sheet.claims[0]["figure"] == "No module named 'deepspeed'" and sheet.claims[1]["figure"] == "ValueError: two"


def test_items_without_time_left_are_skipped(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "part.json", time.time())
    assert sheet.attempt("late", lambda: 1) is None
    assert [(line["claim"], line["verdict"]) for line in sheet.claims] == [("late", "skipped")]


def test_hanging_or_dead_part_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(
        "import sys, time\nsys.exit('broken') if 'resume' in sys.argv else time.sleep(60)"
    )
    monkeypatch.setattr(run, "HERE", tmp_path)
    assert run.run_part("repeat", "cpu", "quick", 0.5)["claims"][0]["figure"] == "ended after its 0 s"
    assert run.run_part("resume", "cpu", "quick", 60.0)["claims"][0]["figure"] == "exit 1: broken"


def test_there_is_time_for_every_part() -> None:
    for size in SIZES:
        assert set(run.list_parts(size)) <= set(run.SECONDS)


def test_plan_runs_in_miniature(tmp_path: Path) -> None:
    """The parts that run in this process; the slow test below runs the others."""
    sheet, size, device = Sheet(tmp_path / "part.json", time.time() + 600.0), SIZES["quick"], torch.device("cpu")
    plan.measure_decoding(sheet, size, device, "nano")
    plan.measure_long_updates(sheet, size, device, "nano")
    outcomes = {line["claim"]: line["verdict"] for line in sheet.claims}
    assert outcomes == {"decode, 4 in flight": "measured", "an update of 512 tokens": "measured"}
    figures = sheet.figures["decode, 4 in flight"]  # times are not judged: other processes may run beside the test
    assert figures["tokens_per_second"] == pytest.approx(4 / (figures["ms"] / 1000)) and figures["limit_ms"] > 0
    assert sheet.figures["512 tokens"]["share_of_peak"] > 0


def test_a_step_moves_weights_and_caches() -> None:
    """Two layers of two key and value heads, 8 wide, 3 rows of 10 tokens: 2 · 2 · 2 · 8 · 30 numbers."""
    model = torch.nn.Linear(5, 4, bias=False)
    model.config = SimpleNamespace(num_hidden_layers=2, num_key_value_heads=2, head_dim=8)  # type: ignore[assignment]
    assert plan.count_moved_bytes(model, 3, 10) == 2 * (20 + 2 * 2 * 2 * 8 * 30)


@pytest.mark.parametrize(
    ("part", "full"),
    [
        ({"figures": {}, "claims": [{"figure": "1", "verdict": "ok"}]}, True),
        ({"figures": {}, "claims": [{"figure": "the part's time was up", "verdict": "skipped"}]}, False),
        ({"figures": {}, "claims": [{"figure": "No module named 'trl'", "verdict": "skipped"}]}, True),
        ({"figures": {}, "claims": [{"figure": "exit 1", "verdict": "FAILED"}]}, False),
        ({"figures": {"ended": "by the part's time; the next call resumes it"}, "claims": []}, False),
    ],
)
def test_interrupted_parts_are_run_again(part: dict[str, Any], full: bool) -> None:
    assert run.is_complete(part) is full


def run_quick(out: Path, parts: list[str], env: dict[str, str]) -> dict[str, Any]:
    """Run the script with `--quick` and return its results."""
    command = [sys.executable, run.__file__, *parts, "--device", "cpu", "--quick", "--out", str(out)]
    process = subprocess.run(command, env=os.environ | env, cwd=out.parent, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    results: dict[str, Any] = json.loads(out.read_text())
    for part in results["parts"].values():
        assert part["claims"], process.stdout
        assert all(line["claim"] in process.stdout and line["verdict"] in process.stdout for line in part["claims"])
    return results


def read_verdicts(results: dict[str, Any], part: str) -> dict[str, str]:
    return {line["claim"]: line["verdict"] for line in results["parts"][part]["claims"]}


@pytest.mark.slow
def test_all_of_it_runs_on_a_cpu(tmp_path: Path) -> None:
    results = run_quick(tmp_path / "gpu.json", [], {})
    assert list(results["parts"]) == run.list_parts("quick")
    assert set(read_verdicts(results, "one-card").values()) == {"ok"}
    assert (
        results["parts"]["flagship"]["figures"]["ended"] == results["parts"]["vision"]["figures"]["ended"] == "complete"
    )
    assert results["parts"]["machine"]["figures"]["environment"]["versions"]["torch"]
    assert set(read_verdicts(results, "repeat").values()) == {"ok", "measured"}
    assert set(read_verdicts(results, "resume").values()) == {"ok"}
    assert read_verdicts(results, "agreement")["nano, bf16: engine = PolicyTrainer"] == "ok"
    assert read_verdicts(results, "train-nano")["train, PolicyTrainer, 512 a micro-batch"] == "measured"
    assert read_verdicts(results, "negotiation-nano") == {"recipe negotiation-nano learns": "measured"}


@pytest.mark.slow
def test_it_runs_with_torch_transformers_and_pydantic_alone(tmp_path: Path) -> None:
    names = {"deepspeed", "pettingzoo", "gymnasium", "gguf", "openskill", "pyspiel", "pandas", "pyarrow"}
    (tmp_path / "sitecustomize.py").write_text(MISSING.format(names=names))
    parts = ["machine", "agreement", "repeat", "learning", "train-nano", "negotiation-nano"]
    results = run_quick(tmp_path / "gpu.json", parts, {"PYTHONPATH": str(tmp_path)})
    assert set(results["parts"]["machine"]["figures"]["missing"]) == names
    agreement = read_verdicts(results, "agreement")
    assert agreement["nano, fp32: engine = scorer (the gate)"] == "ok"
    assert agreement["nano, fp32: engine = PolicyTrainer"] == "skipped"
    assert read_verdicts(results, "repeat")["update twice, fp32, default"] == "ok"
    assert read_verdicts(results, "learning")["nano learns a task (bare loop)"] == "measured"
    assert read_verdicts(results, "train-nano")["train, bare loop, 512 a micro-batch"] == "measured"
    (skipped,) = results["parts"]["negotiation-nano"]["claims"]
    assert skipped["verdict"] == "skipped" and any(name in skipped["figure"] for name in names)
