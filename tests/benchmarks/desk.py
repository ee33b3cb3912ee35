"""Does a nano agent learn at the service desk? Seeds of one recipe, as JSON and a figure.

    python tests/benchmarks/desk.py    # 3 seeds, about a quarter of an hour on one core

Every run is an ordinary `arena run selfplay --recipe desk-nano`, whose warm start imitates random acts and the oracle.
The first iteration is played before any update: that is the control, the warm start without learning.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from arena.doctor import environment
from arena.statistics import mean_ci

RESULTS = Path(__file__).parent / "results"
SEEDS = 3
LAST = 3
"""Iterations whose mean is the end."""
FIGURES = {"success": "matches that succeed", "breaches": "breaches a match", "told": "goals answered right"}


def play(seed: int, folder: Path) -> dict[str, list[float]]:
    """One run: each figure's mean over the matches of each iteration."""
    command = [sys.executable, "-m", "arena", "run", "selfplay", "--recipe", "desk-nano", "--seed", str(seed), "--json"]
    command += ["--set", f"policies.agent.model=nano-{seed}", "--out", str(folder / str(seed))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    reports = [row["report"] for row in rows if "report" in row]
    curves = {name: [report[name] for report in reports] for name in FIGURES}
    print(f"seed {seed}:", *(f"{name} {curve[0]:.3f} -> {curve[-1]:.3f}" for name, curve in curves.items()), flush=True)
    return curves


def summary(runs: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: the first iteration, the mean of the last few, and what each seed gained."""
    found = {}
    for name in FIGURES:
        first = [run[name][0] for run in runs]
        last = [sum(run[name][-LAST:]) / LAST for run in runs]
        found[name] = {
            "first": mean_ci(first),
            "last": mean_ci(last),
            "gain": mean_ci(np.subtract(last, first).tolist()),
        }
    return found


def draw(runs: list[dict[str, list[float]]], path: Path) -> None:
    """Thin lines are seeds, the thick one their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(FIGURES), figsize=(8.5, 3))
    for axis, (name, label) in zip(axes, FIGURES.items(), strict=True):
        curves = np.array([run[name] for run in runs])
        steps = np.arange(1, curves.shape[1] + 1)
        axis.plot(steps, curves.T, color="tab:blue", alpha=0.3, linewidth=0.8)
        axis.plot(steps, curves.mean(0), color="tab:blue", linewidth=2)
        axis.set(xlabel="iteration", title=label, ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.suptitle(f"recipe desk-nano, {len(runs)} seeds")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run the study and write its results."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [play(seed, Path(folder)) for seed in range(SEEDS)]
    command = "python tests/benchmarks/desk.py"
    result: dict[str, Any] = {
        "command": command, "machine": environment() | {"command": command}, "load": os.getloadavg(),
        "control": "the first iteration, played before any update", "tuned_on_seeds": [100],
        "last_iterations": LAST, "summary": summary(runs), "runs": runs,
    }  # fmt: skip
    (RESULTS / "desk.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(runs, RESULTS / "desk.png")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
