"""Does self-play make a policy stronger? Runs of a recipe, arms × seeds at the same budget, judged from outside.

    python tests/benchmarks/strength.py kuhn          # exploitability, exact, every five iterations
    python tests/benchmarks/strength.py tic_tac_toe   # not losing to MCTS with 100 simulations
    python tests/benchmarks/strength.py mars          # trained on three games, tested on three others

Every run is an ordinary `arena run selfplay`, judged by `arena exploit` or `arena eval` on its checkpoints. The arms
differ in `credit.estimator` alone: `mars` learns, `zero` gives every turn advantage 0 (only the KL is left).
Writes results/strength-STUDY.json and .png.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from arena.doctor import environment
from arena.plain import plain
from arena.statistics import difference_ci, mean_ci

RESULTS = Path(__file__).parent / "results"
ARMS = ("mars", "zero")
WORKERS = 2
Curve = dict[int, dict[str, float]]
"""Figures by iteration; 0 is the policy before it learnt from reward."""


def arena(*arguments: str) -> Any:
    """An `arena` command's JSON: the last line it prints."""
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // WORKERS))}
    command = [sys.executable, "-m", "arena", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def exploited(run: Path, study: dict[str, Any]) -> Curve:
    """NashConv of every kept version."""
    found = arena("exploit", str(run), "--game", study["game"], "--history")["contenders"]
    at = (int(row["contender"].rpartition("@")[2]) for row in found)
    return {k: {n: row[n] for n in ("nash_conv", "legal_mass")} for k, row in zip(at, found, strict=True)}


def evaluated(run: Path, study: dict[str, Any]) -> Curve:
    """Every figure of `arena eval` at the study's checkpoints, by game and opponent."""
    found: Curve = {}
    for k in study["at"]:
        found[k] = {}
        for game, against, matches in study["tests"]:
            options = [part for option in study.get("options", ()) for part in ("--option", option)]
            options += ["--against", against] if against else []
            told = arena("eval", f"{run}@{k}", "--game", game, "--matches", str(matches), *options)
            found[k] |= figures_of(told["results"])
    return found


def held_out(run: Path, study: dict[str, Any]) -> Curve:
    """What the run's own `evaluate` section found, before and after."""
    told = json.loads((run / "evaluation.json").read_text())
    return {0: figures_of(told["before"]), study["iterations"]: figures_of(told["results"])}


def figures_of(results: list[dict[str, Any]]) -> dict[str, float]:
    """Every figure of an evaluation's results, by game and opponent."""
    found = {}
    for result in results:
        name = f"{result['game']} vs {result['against']}" if result["scored"] else result["game"]
        found |= {f"{name}: {figure}": value[0] for figure, value in result["figures"].items()}
        if scored := result["scored"]:
            found[f"{name}: not lost"] = 1 - scored["loss"][0] / result["matches"]
    return found


STUDIES: dict[str, dict[str, Any]] = {
    "kuhn": {
        "recipe": "kuhn_poker-nano",
        "game": "kuhn_poker",
        "seeds": {"mars": 5, "zero": 5},
        "set": ["policies.shared.model=nano-{seed}", "checkpoint.every=5", "checkpoint.keep=1000"],
        "judge": exploited,
        "draw": {"nash_conv": "NashConv (0 is equilibrium)", "legal_mass": "mass on legal acts"},
    },
    "tic_tac_toe": {
        "recipe": "tic_tac_toe-nano",
        "seeds": {"mars": 3, "zero": 2},
        "set": ["policies.shared.model=nano-{seed}", "checkpoint.every=20", "checkpoint.keep=1000"],
        "at": [0, 20, 40, 60],
        "tests": [("tic_tac_toe", "mcts:100,random", 100)],
        "judge": evaluated,
        "draw": {
            "tic_tac_toe vs mcts:100: not lost": "not lost to mcts:100",
            "tic_tac_toe vs random: not lost": "not lost to random",
            "tic_tac_toe vs mcts:100: invalid": "invalid acts",
        },
    },
    "mars": {
        "recipe": "mars-small",
        "seeds": {"mars": 3, "zero": 1},
        "iterations": 8,
        "set": ["iterations=8", "checkpoint.every=1000"],
        "judge": held_out,
        "draw": {
            "connect_four vs random: invalid": "illegal acts, connect_four",
            "leduc_poker vs random: payoff": "payoff, leduc_poker against random",
            "hanabi: payoff": "score, simple hanabi with itself",
        },
    },
}


def play(study: dict[str, Any], arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """One run, judged."""
    run, started = folder / f"{arm}-{seed}", time.perf_counter()
    if run.exists():
        arena("resume", str(run))  # which plays what is missing
    else:
        learn(study, arm, seed, run)
    seconds = time.perf_counter() - started
    judge: Callable[[Path, dict[str, Any]], Curve] = study["judge"]
    curve = judge(run, study)
    last = {name: round(value, 3) for name, value in curve[max(curve)].items() if name in study["draw"]}
    print(f"{arm} seed {seed}: {seconds:.0f} s, {last}", flush=True)
    return {"arm": arm, "seed": seed, "seconds": seconds, "curve": curve}


def learn(study: dict[str, Any], arm: str, seed: int, run: Path) -> None:
    """The run itself."""
    settings = [f"credit.estimator={arm}", *(setting.format(seed=seed) for setting in study["set"])]
    arena(
        "run", "selfplay", "--recipe", study["recipe"], "--seed", str(seed), "--out", str(run),
        *(part for setting in settings for part in ("--set", setting)),
    )  # fmt: skip


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: every figure first, last, its change, and mars minus zero at the end."""
    found: dict[str, Any] = {}
    for name in sorted({name for run in runs for name in run["curve"][max(run["curve"])]}):
        ends = {
            arm: [(c[min(c)][name], c[max(c)][name]) for c in curves(runs, arm) if name in c[max(c)]] for arm in ARMS
        }
        found[name] = {
            arm: {
                "first": mean_ci([a for a, _ in pairs]),
                "last": mean_ci([b for _, b in pairs]),
                "change": mean_ci([b - a for a, b in pairs]),
            }
            for arm, pairs in ends.items()
        }
        found[name]["mars_minus_zero"] = difference_ci(*([b for _, b in ends[arm]] for arm in reversed(ARMS)))
    return found


def curves(runs: list[dict[str, Any]], arm: str) -> list[Curve]:
    """All seeds' curves of an arm."""
    return [run["curve"] for run in runs if run["arm"] == arm]


def draw(study: dict[str, Any], runs: list[dict[str, Any]], path: Path) -> None:
    """Curves by arm: thin lines are seeds, the thick one their mean, the band its 95 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(study["draw"]), figsize=(4.2 * len(study["draw"]), 3.4), squeeze=False)
    for axis, (name, title) in zip(axes[0], study["draw"].items(), strict=True):
        for arm, colour in zip(ARMS, ("tab:blue", "tab:orange"), strict=True):
            steps = sorted(curves(runs, arm)[0])
            values = [[curve[k][name] for k in steps] for curve in curves(runs, arm)]
            for each in values:
                axis.plot(steps, each, color=colour, alpha=0.25, linewidth=0.8)
            means = [mean_ci(column) for column in zip(*values, strict=True)]
            axis.plot(steps, [m.estimate for m in means], color=colour, linewidth=2, label=arm)
            if len(values) > 1:
                axis.fill_between(steps, [m.low for m in means], [m.high for m in means], color=colour, alpha=0.12)
        axis.set(xlabel="iteration", title=title)
        axis.grid(alpha=0.3)
    axes[0][0].legend(frameon=False)
    seeds = ", ".join(f"{arm} {count}" for arm, count in study["seeds"].items())
    figure.suptitle(f"recipe {study['recipe']}, seeds: {seeds}; 95 % intervals")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run a study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--folder", type=Path, help="keep the runs here; a study that was interrupted goes on there")
    options = parser.parse_args()
    name, study = options.study, STUDIES[options.study]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(WORKERS) as pool:
        folder = options.folder or Path(temporary)
        jobs = [
            (arm, seed) for seed in range(max(study["seeds"].values())) for arm in ARMS if seed < study["seeds"][arm]
        ]
        runs = list(pool.map(lambda job: play(study, *job, folder), jobs))
    RESULTS.mkdir(exist_ok=True)
    command = f"python tests/benchmarks/strength.py {name}"
    told = {key: value for key, value in study.items() if key != "judge"}
    kept = [run | {"curve": {str(k): figures for k, figures in run["curve"].items()}} for run in runs]
    result = {"command": command, "study": told, "machine": environment(), "summary": summary(runs), "runs": kept}
    (RESULTS / f"strength-{name}.json").write_text(json.dumps(plain(result, "result", gaps=True), indent=1) + "\n")
    if study["draw"]:
        draw(study, runs, RESULTS / f"strength-{name}.png")
    print(json.dumps({n: f for n, f in result["summary"].items() if n in study["draw"] or not study["draw"]}, indent=1))


if __name__ == "__main__":
    main()
