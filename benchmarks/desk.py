"""Does a nano agent learn at the service desk? The recipe `desk-nano` against the same with every advantage 0.

    python benchmarks/desk.py    # 5 seeds × 2 arms, about a quarter of an hour on one core
    python benchmarks/desk.py --redraw    # sums up and draws what is kept, without running

Every run is an ordinary `arena run selfplay --recipe desk-nano` from weights drawn by its seed, whose warm start
imitates random acts and the oracle; both arms play and update equally much. Differences are paired over seeds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.panels import colours, curve, fit, legend, sheet, written
from arena.doctor import environment
from arena.statistics import COUNT, SHARE, Interval, mean_ci, paired_ci

RESULTS = Path(__file__).parent / "results"
SEEDS = 5
LAST = 3
"""Iterations whose mean is the end."""
ARMS = {"learned": [], "zero": ["--set", "credit.estimator=zero"]}
FIGURES = {"success": "matches that succeed", "breaches": "breaches a match", "told": "goals answered right"}
BOUNDS = {"success": SHARE, "breaches": COUNT, "told": SHARE}
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
            "first": {arm: mean_ci([run[name][0] for run in curves], BOUNDS[name]) for arm, curves in runs.items()},
            "last": {arm: mean_ci(values, BOUNDS[name]) for arm, values in ends.items()},
            "learned minus zero": paired_ci(ends["zero"], ends["learned"], BOUNDS[name]),
        }
    return found


def draw(result: dict[str, Any]) -> Figure:
    """Curves by arm; their ends are the mean of the last iterations, as in the summary."""
    heading = f"desk-nano, {SEEDS} seeds (thin), their mean, and 95 % intervals of the last {LAST} iterations"
    figure, axes = sheet(list(FIGURES.values()), heading)
    for axis, name in zip(axes, FIGURES, strict=True):
        for place, (arm, colour) in enumerate(colours(result["runs"]).items()):
            seeds = [run[name] for run in result["runs"][arm]]
            end = Interval(*result["summary"][name]["last"][arm])
            curve(axis, range(1, len(seeds[0]) + 1), seeds, end, arm, colour, place)
        fit(axis, BOUNDS[name])
    legend(figure)
    return figure


def write(result: dict[str, Any]) -> None:
    """Write the numbers that are kept, summed up, and their picture."""
    result["summary"] = summary(result["runs"])
    (RESULTS / "desk.json").write_text(json.dumps(result, indent=1) + "\n")
    written(draw(result), RESULTS / "desk.png")
    print(json.dumps(result["summary"], indent=1))


def main() -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redraw", action="store_true", help="sum up and draw the kept numbers, without running")
    if parser.parse_args().redraw:
        write(json.loads((RESULTS / "desk.json").read_text()))
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = {arm: [play(arm, seed, Path(folder)) for seed in range(SEEDS)] for arm in ARMS}
    write({
        "command": "python benchmarks/desk.py", "machine": environment(), "seeds": SEEDS, "tuned_on_seeds": [100],
        "last_iterations": LAST, "summary": {}, "runs": runs,
    })  # fmt: skip


if __name__ == "__main__":
    main()
