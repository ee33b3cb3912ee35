"""Does self-play learn? Arms × seeds of one recipe at the same budget, as JSON and a figure.

    python tests/benchmarks/learning.py nano       # 3 arms × 5 seeds, about 15 minutes on two cores
    python tests/benchmarks/learning.py smollm2    # 2 arms × 3 seeds, about 30 minutes on two cores

Every run is an ordinary `arena run selfplay`; arms differ in `credit.estimator` alone. `zero` gives every turn
advantage 0 (only the KL is left); `shuffled` keeps the advantages and deals them to random turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arena.doctor import environment
from arena.statistics import difference_ci, mean_ci

RESULTS = Path(__file__).parent / "results"
STUDIES: dict[str, dict[str, Any]] = {
    "nano": {
        "recipe": "negotiation-nano",
        "arms": ["mars", "zero", "shuffled"],
        "seeds": 5,
        "workers": 2,
        "figures": ["mean_payoff", "deal", "valid_rate"],
        "set": ["policies.shared.model=nano-{seed}"],
        "last": 5,
    },
    "smollm2": {
        "recipe": "negotiation",
        "arms": ["mars", "zero"],
        "seeds": 3,
        "workers": 2,
        "figures": ["valid_rate", "deal", "mean_payoff"],
        "set": ["checkpoint.every=1000"],
        "last": 2,
    },
}


def play(study: dict[str, Any], arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """One run; its metrics, and how long the command took."""
    out = folder / f"{arm}-{seed}"
    command = [sys.executable, "-m", "arena", "run", "selfplay", "--recipe", study["recipe"], "--seed", str(seed)]
    command += ["--set", f"credit.estimator={arm}", "--out", str(out), "--json"]
    for setting in study["set"]:
        command += ["--set", setting.format(seed=seed)]
    started = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(2 // study["workers"])}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][:-1]
    seconds = time.perf_counter() - started
    print(
        f"{arm} seed {seed}: {seconds:.0f} s", *(f"{f} {curve(rows, f)[-1]:.3f}" for f in study["figures"]), flush=True
    )
    return {"arm": arm, "seed": seed, "seconds": seconds, "curves": {f: curve(rows, f) for f in study["figures"]}}


def curve(rows: list[dict[str, Any]], figure: str) -> list[float]:
    """One figure per iteration."""
    return [row[figure] if figure in row else row["report"][figure] for row in rows]


def summary(study: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: the first iteration, the mean of the last few, and mars minus each control."""
    found: dict[str, Any] = {}
    for figure in study["figures"]:
        ends = {arm: [tail(r, figure, study["last"]) for r in runs if r["arm"] == arm] for arm in study["arms"]}
        starts = {arm: [r["curves"][figure][0] for r in runs if r["arm"] == arm] for arm in study["arms"]}
        found[figure] = {
            "first": {arm: mean_ci(values) for arm, values in starts.items()},
            "last": {arm: mean_ci(values) for arm, values in ends.items()},
            "mars_minus": {arm: difference_ci(ends[arm], ends["mars"]) for arm in study["arms"] if arm != "mars"},
        }
    return found


def tail(run: dict[str, Any], figure: str, last: int) -> float:
    """Mean over a run's last iterations."""
    values = run["curves"][figure][-last:]
    return float(sum(values) / len(values))


def draw(study: dict[str, Any], runs: list[dict[str, Any]], path: Path) -> None:
    """Curves by arm: thin lines are seeds, the thick one their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    names = {"mean_payoff": "mean payoff", "deal": "deal rate", "valid_rate": "valid-act rate"}
    colours = dict(zip(study["arms"], ("tab:blue", "tab:orange", "tab:green"), strict=False))
    figure, axes = plt.subplots(1, len(study["figures"]), figsize=(4 * len(study["figures"]), 3.2))
    for axis, name in zip(axes, study["figures"], strict=True):
        for arm, colour in colours.items():
            curves = np.array([r["curves"][name] for r in runs if r["arm"] == arm])
            steps = np.arange(1, curves.shape[1] + 1)
            axis.plot(steps, curves.T, color=colour, alpha=0.25, linewidth=0.8)
            axis.plot(steps, curves.mean(0), color=colour, linewidth=2, label=arm)
        axis.set(xlabel="iteration", title=names[name])
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.suptitle(f"recipe {study['recipe']}, {study['seeds']} seeds")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run a study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    name = parser.parse_args().study
    study = STUDIES[name]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(study["workers"]) as pool:
        jobs = [(arm, seed) for seed in range(study["seeds"]) for arm in study["arms"]]
        runs = list(pool.map(lambda job: play(study, *job, Path(folder)), jobs))
    RESULTS.mkdir(exist_ok=True)
    command = f"python tests/benchmarks/learning.py {name}"
    machine = environment() | {"command": command}
    result = {"command": command, "study": study, "machine": machine, "summary": summary(study, runs), "runs": runs}
    (RESULTS / f"learning-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(study, runs, RESULTS / f"learning-{name}.png")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
