"""Does self-play learn? Arms × seeds of one recipe at the same budget, as JSON and a figure.

    python tests/benchmarks/learning.py nano       # 3 arms × 5 seeds, about 15 minutes on two cores
    python tests/benchmarks/learning.py smollm2    # 2 arms × 3 seeds, about 30 minutes on two cores
    python tests/benchmarks/learning.py nano --redraw    # sums up and draws what is kept, without running

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

from matplotlib.figure import Figure

from analysis.panels import colours, curve, fit, legend, sheet, written
from arena.doctor import environment
from arena.statistics import SHARE, Interval, difference_ci, mean_ci

RESULTS = Path(__file__).parent / "results"
NAMES = {"mean_payoff": "mean payoff", "deal": "deal rate", "valid_rate": "valid-act rate"}
BOUNDS = {"mean_payoff": (0.0, 10.0), "deal": SHARE, "valid_rate": SHARE}
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
        f"{arm} seed {seed}: {seconds:.0f} s",
        *(f"{f} {by_iteration(rows, f)[-1]:.3f}" for f in study["figures"]),
        flush=True,
    )
    return {
        "arm": arm,
        "seed": seed,
        "seconds": seconds,
        "curves": {f: by_iteration(rows, f) for f in study["figures"]},
    }


def by_iteration(rows: list[dict[str, Any]], figure: str) -> list[float]:
    """One figure per iteration."""
    return [row[figure] if figure in row else row["report"][figure] for row in rows]


def summary(study: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: the first iteration, the mean of the last few, and mars minus each control."""
    found: dict[str, Any] = {}
    for figure in study["figures"]:
        ends = {arm: [tail(r, figure, study["last"]) for r in runs if r["arm"] == arm] for arm in study["arms"]}
        starts = {arm: [r["curves"][figure][0] for r in runs if r["arm"] == arm] for arm in study["arms"]}
        found[figure] = {
            "first": {arm: mean_ci(values, BOUNDS[figure]) for arm, values in starts.items()},
            "last": {arm: mean_ci(values, BOUNDS[figure]) for arm, values in ends.items()},
            "mars_minus": {
                arm: difference_ci(ends[arm], ends["mars"], BOUNDS[figure]) for arm in study["arms"] if arm != "mars"
            },
        }
    return found


def tail(run: dict[str, Any], figure: str, last: int) -> float:
    """Mean over a run's last iterations."""
    values = run["curves"][figure][-last:]
    return float(sum(values) / len(values))


def draw(result: dict[str, Any]) -> Figure:
    """Curves by arm; their ends are the mean of the last iterations, as in the summary."""
    study, runs = result["study"], result["runs"]
    of_what = f"{study['recipe']}, {study['seeds']} seeds (thin), their mean"
    heading = f"{of_what}, 95 % intervals of the last {study['last']} iterations"
    figure, axes = sheet([NAMES[name] for name in study["figures"]], heading)
    for axis, name in zip(axes, study["figures"], strict=True):
        for place, (arm, colour) in enumerate(colours(study["arms"]).items()):
            seeds = [run["curves"][name] for run in runs if run["arm"] == arm]
            end = Interval(*result["summary"][name]["last"][arm])
            curve(axis, range(1, len(seeds[0]) + 1), seeds, end, arm, colour, place)
        fit(axis, BOUNDS[name])
    legend(figure)
    return figure


def write(name: str, result: dict[str, Any]) -> None:
    """What is kept: the numbers, summed up, and their picture."""
    result["summary"] = summary(result["study"], result["runs"])
    (RESULTS / f"learning-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    written(draw(result), RESULTS / f"learning-{name}.png")
    print(json.dumps(result["summary"], indent=1))


def main() -> None:
    """Run a study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--redraw", action="store_true", help="sum up and draw the kept numbers, without running")
    options = parser.parse_args()
    name, study = options.study, STUDIES[options.study]
    if options.redraw:
        write(name, json.loads((RESULTS / f"learning-{name}.json").read_text()))
        return
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(study["workers"]) as pool:
        jobs = [(arm, seed) for seed in range(study["seeds"]) for arm in study["arms"]]
        runs = list(pool.map(lambda job: play(study, *job, Path(folder)), jobs))
    RESULTS.mkdir(exist_ok=True)
    command = f"python tests/benchmarks/learning.py {name}"
    machine = environment() | {"command": command}
    write(name, {"command": command, "study": study, "machine": machine, "summary": {}, "runs": runs})


if __name__ == "__main__":
    main()
