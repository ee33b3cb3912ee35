"""Does self-play learn? Arms × seeds of one recipe at the same budget, as JSON and a figure.

    python benchmarks/learning.py nano          # 3 arms × 5 seeds, about 15 minutes on two cores
    python benchmarks/learning.py long          # more offers shown, for better deals: 2 arms × 3 seeds
    python benchmarks/learning.py adapters      # a low-rank adapter for each role: 2 arms × 3 seeds
    python benchmarks/learning.py before        # what failed in the recipe as it was: 5 arms × 3 seeds
    python benchmarks/learning.py clinic        # or proposer_solver, hanabi: 2 arms × 3 seeds
    python benchmarks/learning.py nano --redraw    # sums up and draws what is kept, without running
    python benchmarks/learning.py long --folder F    # a stopped study, started again, goes on from there

Every run is an ordinary `arena run selfplay`. The first arm is what the others are compared with. `zero` gives every
turn advantage 0 (only the KL is left); `shuffled` keeps the advantages and deals them to random turns.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from threading import Lock
from typing import Any

from matplotlib.figure import Figure

from analysis.panels import colours, curve, fit, legend, sheet, written
from arena.doctor import environment
from arena.statistics import SHARE, Bounds, Interval, difference_ci, mean_ci, paired_ci

RESULTS = Path(__file__).parent / "results"
NAMES = {
    "mean_payoff": "mean payoff", "deal": "deal rate", "valid_rate": "valid-act rate",
    "efficiency": "joint value / best", "payoff_first": "payoff, first mover", "payoff_second": "payoff, other",
    "equilibrium_distance": "distance to equilibrium", "success": "success", "invalid": "illegal acts a match",
    "s": "right answers", "terms": "numbers in a task",
}  # fmt: skip
PAYOFF: Bounds = (0.0, 10.0)
BOUNDS: dict[str, Bounds] = {
    "mean_payoff": PAYOFF, "deal": SHARE, "valid_rate": SHARE, "efficiency": SHARE, "payoff_first": PAYOFF,
    "payoff_second": PAYOFF, "equilibrium_distance": (0.0, 200**0.5), "success": SHARE, "invalid": (0.0, 12.0),
    "s": SHARE, "terms": (0.0, 4.0),
}  # fmt: skip
ZERO, SHUFFLED = ({"set": [f"credit.estimator={name}"]} for name in ("zero", "shuffled"))
WARM = ["policies.{policy}.imitate=null", "policies.{policy}.model={warm}"]
"""Settings of a control that begins with the weights with which the first arm's imitation of the same seed ended."""
WARM_ROLES = [
    setting
    for role in ("opener", "responder")
    for setting in (
        f"policies.{role}.imitate=null",
        f"policies.{role}.adapter=null",
        f"policies.{role}.model={{begun}}/{role}",
    )
]
"""The same, where both roles have an adapter."""
SMOLLM2 = {
    "arms": {"mars": {}, "zero": {"set": [*WARM, *ZERO["set"]]}},
    "seeds": 3,
    "set": ["checkpoint.every=1000"],
    "last": 2,
}
SHOWN = ["brains=[fair_split]", "matches=192", "minibatches=32", "epochs=1", "lr=2e-4", "decay=true"]
BARGAINING = ["valid_rate", "deal", "efficiency", "payoff_first", "payoff_second", "equilibrium_distance"]
STUDIES: dict[str, dict[str, Any]] = {
    "nano": {
        "recipe": "negotiation-nano",
        "arms": {"mars": {}, "zero": ZERO, "shuffled": SHUFFLED},
        "seeds": 5,
        "figures": ["mean_payoff", "deal", "valid_rate"],
        "set": ["policies.shared.model=nano-{seed}"],
        "last": 5,
    },
    "long": {
        "recipe": "negotiation-shown",
        "arms": {"mars": {}, "zero": {"set": [*WARM, *ZERO["set"]]}},
        "seeds": 3,
        "figures": BARGAINING,
        "set": ["checkpoint.every=1000"],
        "last": 2,
    },
    "adapters": {
        "recipe": "negotiation-adapters",
        "arms": {"mars": {}, "zero": {"set": [*WARM_ROLES, *ZERO["set"]]}},
        "seeds": 3,
        "figures": BARGAINING,
        "set": ["checkpoint.every=1000"],
        "last": 2,
    },
    "clinic": {"recipe": "clinic", "policy": "doctor", "figures": ["valid_rate", "success", "invalid"], **SMOLLM2},
    "proposer_solver": {"recipe": "proposer_solver", "figures": ["valid_rate", "s", "terms"], **SMOLLM2},
    "hanabi": {
        "recipe": "hanabi",
        "figures": ["mean_payoff", "valid_rate"],
        "bounds": {"mean_payoff": [0.0, 4.0]},
        **SMOLLM2,
    },
    "before": {
        "recipe": "negotiation as it was before",
        "kept": "before/negotiation.yaml",
        "arms": {
            "as it was": {},
            "illegal acts retried": {"set": ["game.options.illegal=retry"]},
            "48 matches × 5": {"set": ["play.matches=48", "iterations=5"]},
            "entropy .01": {"set": ["learn.regularisers.entropy.weight=0.01"]},
            "fair splits shown": {"set": [f"policies.shared.imitate.{what}" for what in SHOWN]},
        },
        "seeds": 3,
        "figures": ["deal", "valid_rate", "mean_payoff"],
        "set": ["checkpoint.every=1000"],
        "last": 2,
    },
}
"""`seeds` of an arm, from 0, are the study's unless it has its own; `set` adds to what all are given; `policy`
is the one that learns, `shared` unless it is named; `kept`, an experiment to run in place of a recipe; `bounds`, of
figures that go less far in its game than `BOUNDS` says."""
WORKERS = 2
"""Runs at a time, with a thread each."""


def seeds(study: dict[str, Any], arm: str) -> int:
    """Return the number of seeds of an arm; in older results all have as many."""
    arms = study["arms"]
    own: int = arms[arm].get("seeds", study["seeds"]) if isinstance(arms, dict) else study["seeds"]
    return own


def play(study: dict[str, Any], arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """One run, or the rest of it; its metrics, and how long the command took."""
    about = study["arms"][arm]
    policy = study.get("policy", "shared")
    begun = folder / f"{next(iter(study['arms']))}-{seed}" / "checkpoints" / "0000" / "policies"
    command = [sys.executable, "-m", "arena", "run", "selfplay", *begin(study), "--seed", str(seed)]
    run = folder / f"{arm}-{seed}"
    command += ["--out", str(run), "--json"]
    for setting in [*study["set"], *about.get("set", ())]:
        command += ["--set", setting.format(seed=seed, policy=policy, warm=begun / policy, begun=begun)]
    if (run / "log").exists():  # a stopped study began it
        command = [sys.executable, "-m", "arena", "resume", str(run), "--json"]
    started = time.perf_counter()
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = time.perf_counter() - started
    ends = (f"{figure} {by_iteration(rows, figure)[-1]:.3f}" for figure in study["figures"])
    print(f"{arm} seed {seed}: {seconds:.0f} s", *ends, flush=True)
    return {
        "arm": arm,
        "seed": seed,
        "seconds": seconds,
        "curves": {f: by_iteration(rows, f) for f in study["figures"]},
        "theory": {f: by_iteration(rows, f) for f in THEORY if f in rows[0]["report"]},
    }


def begin(study: dict[str, Any]) -> list[str]:
    """Return the options with which a study's runs begin: a recipe, or an experiment kept here beside its roles."""
    if "kept" not in study:
        return ["--recipe", study["recipe"]]
    experiment = Path(__file__).parent / study["kept"]
    return ["--config", str(experiment), "--roles", str(experiment.parent)]


def by_iteration(rows: list[dict[str, Any]], figure: str) -> list[float]:
    """One figure per iteration."""
    return [row[figure] if figure in row else row["report"][figure] for row in rows]


def summary(study: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: first iteration, mean of the last, their change, the first arm minus others."""
    main, *others = study["arms"]
    found: dict[str, Any] = {}
    for figure in study["figures"]:
        ends = {arm: [tail(r, figure, study["last"]) for r in runs if r["arm"] == arm] for arm in study["arms"]}
        starts = {arm: [r["curves"][figure][0] for r in runs if r["arm"] == arm] for arm in study["arms"]}
        limits = bounds(study, figure)
        found[figure] = {
            "first": {arm: mean_ci(values, limits) for arm, values in starts.items()},
            "last": {arm: mean_ci(values, limits) for arm, values in ends.items()},
            "change": {arm: paired_ci(starts[arm], ends[arm], limits) for arm in study["arms"]},
            f"{main}_minus": {arm: difference_ci(ends[arm], ends[main], limits) for arm in others},
        }
    return found


def bounds(study: dict[str, Any], figure: str) -> Bounds:
    """Return the bounds of a figure in a study's game."""
    low, high = study.get("bounds", BOUNDS).get(figure, BOUNDS[figure])
    return low, high


def tail(run: dict[str, Any], figure: str, last: int) -> float:
    """Mean over a run's last iterations."""
    values = run["curves"][figure][-last:]
    return float(sum(values) / len(values))


def draw(result: dict[str, Any]) -> Figure:
    """Curves by arm; their ends are the mean of the last iterations, as in the summary."""
    study, runs = result["study"], result["runs"]
    counts = " and ".join(map(str, dict.fromkeys(seeds(study, arm) for arm in study["arms"])))
    of_what = f"{study['recipe']}, {counts} seeds (thin), their mean"
    heading = f"{of_what}, 95 % intervals of the last {study['last']} iterations"
    figure, axes = sheet([NAMES[name] for name in study["figures"]], heading)
    for axis, name in zip(axes, study["figures"], strict=True):
        for place, (arm, colour) in enumerate(colours(study["arms"]).items()):
            lines = [run["curves"][name] for run in runs if run["arm"] == arm]
            end = Interval(*result["summary"][name]["last"][arm])
            curve(axis, range(1, len(lines[0]) + 1), lines, end, arm, colour, place)
        if told := [fmean(values) for run in runs if (values := run.get("theory", {}).get(f"equilibrium_{name}"))]:
            axis.axhline(fmean(told), linestyle=":", color="black", label="equilibrium")
        fit(axis, bounds(study, name))
    legend(figure)
    return figure


def write(name: str, result: dict[str, Any]) -> None:
    """Write the numbers that are kept, summed up, and their picture."""
    result["summary"] = summary(result["study"], result["runs"])
    (RESULTS / f"learning-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    written(draw(result), RESULTS / f"learning-{name}.png")
    print(json.dumps(result["summary"], indent=1))


THEORY = ("equilibrium_payoff_first", "equilibrium_payoff_second")
"""Figures that say what theory gives for the same matches, where their game has one."""


def main() -> None:
    """Run a study and write its results, run by run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--redraw", action="store_true", help="sum up and draw the kept numbers, without running")
    parser.add_argument("--folder", type=Path, help="run here, keep the runs already in the results, go on with others")
    options = parser.parse_args()
    name, study, place = options.study, STUDIES[options.study], RESULTS / f"learning-{options.study}.json"
    if options.redraw:
        write(name, json.loads(place.read_text()))
        return
    RESULTS.mkdir(exist_ok=True)
    command = f"python benchmarks/learning.py {name}"
    kept = json.loads(place.read_text()) if options.folder and place.exists() else {"runs": []}
    runs: list[dict[str, Any]] = [run for run in kept["runs"] if kept["study"] == study]
    machine = environment() | {"command": command}
    result = {"command": command, "study": study, "machine": machine, "summary": {}, "runs": runs}
    done = {(run["arm"], run["seed"]) for run in runs}
    arms, writing = list(study["arms"]), Lock()

    def play_seed(seed: int, folder: Path) -> None:
        """All arms of a seed, the first one first: controls may begin with its weights."""
        due = [arm for arm in arms if seed < seeds(study, arm) and (arm, seed) not in done]
        for arm in dict.fromkeys([*(arms[:1] if due else ()), *due]):
            run = play(study, arm, seed, folder)
            with writing:
                runs.extend([run] if arm in due else [])
                runs.sort(key=lambda run: (arms.index(run["arm"]), run["seed"]))
                place.write_text(json.dumps(result, indent=1) + "\n")
        for arm in arms:
            shutil.rmtree(folder / f"{arm}-{seed}", ignore_errors=True)

    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(WORKERS) as pool:
        folder = options.folder or Path(temporary)
        list(pool.map(lambda seed: play_seed(seed, folder), range(max(seeds(study, arm) for arm in arms))))
    write(name, result)


if __name__ == "__main__":
    main()
