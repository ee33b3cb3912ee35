"""Does self-play make a policy stronger? Runs of a recipe, arms × seeds at the same budget, judged from outside.

    python benchmarks/strength.py kuhn          # exploitability, exact, every five iterations
    python benchmarks/strength.py mars          # trained on three games, tested on three others
    python benchmarks/strength.py collapse      # tic-tac-toe, 256 iterations: pure self-play beside a league

Every run is an ordinary `arena run selfplay`, judged by `arena exploit` or `arena eval` on its checkpoints. Where a
study does not say what its arms are, they differ in `credit.estimator` alone: `mars` learns, `zero` gives every turn
advantage 0 (only the KL is left). The first arm is compared with the second.
Writes results/strength-STUDY.json and .png; `--redraw` sums up and draws what is kept, without running.
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

from learning import WARM
from matplotlib.figure import Figure

from analysis.panels import FEW, colours, curve, fit, legend, points, sheet, written
from arena.doctor import environment
from arena.plain import plain
from arena.process import cores
from arena.statistics import SHARE, Bounds, difference_ci, mean_ci, paired_ci, range_of

RESULTS = Path(__file__).parent / "results"
WORKERS = 2
Curve = dict[int, dict[str, float]]
"""Figures by iteration; 0 is the policy before it learnt from reward."""


def arena(*arguments: str) -> Any:
    """An `arena` command's JSON: the last line it prints."""
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // WORKERS))}
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
    """Return what the run's own `evaluate` section found, before and after."""
    told = json.loads((run / "evaluation.json").read_text())
    return {0: figures_of(told["before"]), study["iterations"]: figures_of(told["results"])}


def figures_of(results: list[dict[str, Any]]) -> dict[str, float]:
    """Every figure of an evaluation's results, by game and opponent."""
    found: dict[str, float] = {}
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
    "collapse": {
        "recipe": "tic_tac_toe-nano",
        "seeds": {"league": 5, "self-play": 5},
        "arms": {"league": [], "self-play": ["league=null", *WARM]},
        "set": ["policies.shared.model=nano-{seed}", "iterations=256", "checkpoint.every=32", "checkpoint.keep=1000"],
        "at": [0, 32, 64, 96, 128, 160, 192, 224, 256],
        "tests": [("tic_tac_toe", "minimax,mcts:100,random", 100)],
        "judge": evaluated,
        "draw": {
            "tic_tac_toe vs minimax: not lost": "drawn against minimax",
            "tic_tac_toe vs mcts:100: not lost": "not lost to mcts:100",
            "tic_tac_toe vs random: not lost": "not lost to random",
            "tic_tac_toe vs minimax: invalid": "invalid acts",
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


KNOWN: dict[str, Bounds] = {"hanabi: payoff": (0.0, 4.0), "leduc_poker vs random: payoff": (-13.0, 13.0)}
"""Payoffs, of which the games say how far they go."""


def bounds(name: str) -> Bounds:
    """Return the bounds of a figure."""
    last = name.rpartition(": ")[2]
    return KNOWN.get(name) or (SHARE if last in ("win", "invalid", "not lost", "legal_mass") else range_of(last))


def play(study: dict[str, Any], arm: str, seed: int, folder: Path) -> dict[str, Any]:
    """One run, judged."""
    run, started = folder / f"{arm}-{seed}", time.perf_counter()
    judged = folder / f"{arm}-{seed}.json"
    if judged.exists():
        told: dict[str, Any] = json.loads(judged.read_text())
        return told | {"curve": {int(k): figures for k, figures in told["curve"].items()}}
    if run.exists():
        arena("resume", str(run))  # which plays what is missing
    else:
        learn(study, arm, seed, run)
    seconds = time.perf_counter() - started
    judge: Callable[[Path, dict[str, Any]], Curve] = study["judge"]
    curve = judge(run, study)
    last = {name: round(value, 3) for name, value in curve[max(curve)].items() if name in study["draw"]}
    print(f"{arm} seed {seed}: {seconds:.0f} s, {last}", flush=True)
    result = {"arm": arm, "seed": seed, "seconds": seconds, "curve": curve}
    by_text = result | {"curve": {str(k): figures for k, figures in curve.items()}}
    judged.write_text(json.dumps(plain(by_text, "result", gaps=True)))
    return result


def play_seed(study: dict[str, Any], seed: int, folder: Path) -> list[dict[str, Any]]:
    """All arms of a seed, one after the other: the second may begin with the weights that the first imitated with."""
    return [play(study, arm, seed, folder) for arm in study["seeds"] if seed < study["seeds"][arm]]


def learn(study: dict[str, Any], arm: str, seed: int, run: Path) -> None:
    """The run itself."""
    own = study.get("arms", {}).get(arm, [f"credit.estimator={arm}"])
    first = run.parent / f"{next(iter(study['seeds']))}-{seed}"
    warm = first / "checkpoints" / "0000" / "policies" / "shared"
    settings = [setting.format(seed=seed, policy="shared", warm=warm) for setting in [*study["set"], *own]]
    arena(
        "run", "selfplay", "--recipe", study["recipe"], "--seed", str(seed), "--out", str(run),
        *(part for setting in settings for part in ("--set", setting)),
    )  # fmt: skip


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Over seeds, with 95 % intervals: every figure first, last, its change, and one arm minus the other at the end."""
    found: dict[str, Any] = {}
    arms = arms_of(runs)
    one, other = arms
    for name in sorted({name for run in runs for name in run["curve"][max(run["curve"])]}):
        ends = {
            arm: [(c[min(c)][name], c[max(c)][name]) for c in curves(runs, arm) if name in c[max(c)]] for arm in arms
        }
        found[name] = {
            arm: {
                "first": mean_ci([a for a, _ in pairs], bounds(name)),
                "last": mean_ci([b for _, b in pairs], bounds(name)),
                "change": paired_ci([a for a, _ in pairs], [b for _, b in pairs], bounds(name)),
            }
            for arm, pairs in ends.items()
        }
        found[name][f"{one}_minus_{other}"] = difference_ci(
            [b for _, b in ends[other]], [b for _, b in ends[one]], bounds(name)
        )
    return found


def arms_of(runs: list[dict[str, Any]]) -> list[str]:
    """The arms in the study's order: the first run is of the first arm."""
    return list(dict.fromkeys(run["arm"] for run in runs))


def curves(runs: list[dict[str, Any]], arm: str) -> list[Curve]:
    """All seeds' curves of an arm."""
    return [run["curve"] for run in runs if run["arm"] == arm]


def draw(study: dict[str, Any], runs: list[dict[str, Any]]) -> Figure:
    """Curves by arm; dots with intervals where a policy was judged a few times only."""
    arms = arms_of(runs)
    seeds = ", ".join(f"{arm} {len(curves(runs, arm))}" for arm in arms)
    figure, axes = sheet(list(study["draw"].values()), f"{study['recipe']}, seeds: {seeds}; 95 % intervals over seeds")
    for axis, name in zip(axes, study["draw"], strict=True):
        for place, (arm, colour) in enumerate(colours(arms).items()):
            steps = sorted(curves(runs, arm)[0])
            values = [[figures[k][name] for k in steps] for figures in curves(runs, arm)]
            means = [mean_ci(column, bounds(name)) for column in zip(*values, strict=True)]
            if len(steps) < FEW:
                points(axis, steps, means, arm, colour, place)
            else:
                curve(axis, steps, values, means[-1], arm, colour, place)
        fit(axis, bounds(name))
    legend(figure)
    return figure


def write(name: str, result: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    """Write the numbers that are kept, summed up, and their picture."""
    study = STUDIES[name]
    result["summary"] = summary(runs)
    (RESULTS / f"strength-{name}.json").write_text(json.dumps(plain(result, "result", gaps=True), indent=1) + "\n")
    written(draw(study, runs), RESULTS / f"strength-{name}.png")
    print(json.dumps({n: f for n, f in result["summary"].items() if n in study["draw"]}, indent=1))


def read_back(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what an earlier run of the study found, and its runs with their iterations as numbers."""
    result = json.loads((RESULTS / f"strength-{name}.json").read_text())
    return result, [run | {"curve": {int(k): row for k, row in run["curve"].items()}} for run in result["runs"]]


def main() -> None:
    """Run a study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--folder", type=Path, help="keep the runs here; a study that was interrupted goes on there")
    parser.add_argument("--redraw", action="store_true", help="sum up and draw the kept numbers, without running")
    options = parser.parse_args()
    name, study = options.study, STUDIES[options.study]
    if options.redraw:
        write(name, *read_back(name))
        return
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(WORKERS) as pool:
        folder = options.folder or Path(temporary)
        of_seeds = pool.map(lambda seed: play_seed(study, seed, folder), range(max(study["seeds"].values())))
        runs = [run for of_seed in of_seeds for run in of_seed]
    RESULTS.mkdir(exist_ok=True)
    command = f"python benchmarks/strength.py {name}"
    told = {key: value for key, value in study.items() if key != "judge"}
    by_text = [run | {"curve": {str(k): figures for k, figures in run["curve"].items()}} for run in runs]
    write(name, {"command": command, "study": told, "machine": environment(), "summary": {}, "runs": by_text}, runs)


if __name__ == "__main__":
    main()
