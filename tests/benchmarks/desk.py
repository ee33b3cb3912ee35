"""Does a nano agent learn at the service desk? The recipe `desk-nano` against the same with every advantage 0.

    python tests/benchmarks/desk.py    # 5 seeds × 2 arms, about a quarter of an hour on one core

Every run is an ordinary `arena run selfplay --recipe desk-nano` from weights drawn by its seed, whose warm start
imitates random acts and the oracle; both arms play and update equally much. Differences are paired over seeds.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from arena.doctor import environment
from arena.statistics import mean_ci

RESULTS = Path(__file__).parent / "results"
SEEDS = 5
LAST = 3
"""Iterations whose mean is the end."""
ARMS = {"learned": [], "zero": ["--set", "credit.estimator=zero"]}
FIGURES = {"success": "matches that succeed", "breaches": "breaches a match", "told": "goals answered right"}
Curves = dict[str, list[float]]


def play(arm: str, seed: int, folder: Path) -> Curves:
    """One run: each figure's mean over the matches of each iteration."""
    command = [sys.executable, "-m", "arena", "run", "selfplay", "--recipe", "desk-nano", "--seed", str(seed), "--json"]
    command += ["--set", f"policies.agent.model=nano-{seed}", *ARMS[arm], "--out", str(folder / f"{arm}-{seed}")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    reports = [row["report"] for row in rows if "report" in row]
    curves = {name: [report[name] for report in reports] for name in FIGURES}
    ends = (f"{name} {curve[0]:.3f} -> {curve[-1]:.3f}" for name, curve in curves.items())
    print(f"{arm} seed {seed}:", *ends, flush=True)
    return curves


def summary(runs: dict[str, list[Curves]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: the first iteration, the mean of the last few, and what learning added."""
    found: dict[str, Any] = {}
    for name in FIGURES:
        ends = {arm: [float(np.mean(run[name][-LAST:])) for run in curves] for arm, curves in runs.items()}
        found[name] = {
            "first": {arm: mean_ci([run[name][0] for run in curves]) for arm, curves in runs.items()},
            "last": {arm: mean_ci(values) for arm, values in ends.items()},
            "learned minus zero": mean_ci(np.subtract(ends["learned"], ends["zero"]).tolist()),
        }
    return found


def draw(runs: dict[str, list[Curves]], path: Path) -> None:
    """Means over seeds with their 95 % intervals."""
    figure = Figure(figsize=(8.5, 3))
    for axis, (name, label) in zip(figure.subplots(1, len(FIGURES)), FIGURES.items(), strict=True):
        for arm, colour in zip(runs, ("tab:blue", "tab:grey"), strict=True):
            told = zip(*(run[name] for run in runs[arm]), strict=True)
            means, lows, highs = zip(*map(mean_ci, told), strict=True)
            steps = range(1, len(means) + 1)
            axis.plot(steps, means, color=colour, label=arm)
            axis.fill_between(steps, lows, highs, color=colour, alpha=0.2)
        axis.set(xlabel="iteration", title=label, ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run the study and write its results."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {arm: [play(arm, seed, Path(folder)) for seed in range(SEEDS)] for arm in ARMS}
    result: dict[str, Any] = {
        "command": "python tests/benchmarks/desk.py", "machine": environment(), "seeds": SEEDS, "tuned_on_seeds": [100],
        "last_iterations": LAST, "summary": summary(runs), "runs": runs,
    }  # fmt: skip
    (RESULTS / "desk.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(runs, RESULTS / "desk.png")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
