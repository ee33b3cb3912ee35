"""Does a proposer raise the solver's accuracy on fixed tests of reasoning-gym, against training the solver alone?

    python benchmarks/proposer.py     # 2 arms × 5 seeds, about half an hour
    python benchmarks/proposer.py --redraw    # sums up and draws what is kept, without running
    python benchmarks/proposer.py --seeds 1 --questions 20 --set iterations=2     # does it run?

Every run is an ordinary `arena run selfplay --recipe proposer_solver-nano` from the same warm start (one per seed).
Arms: `frontier`, the recipe, whose proposer is paid 4 s (1 - s); `hard`, paid 1 - s; `solver_only`, a scripted proposer
of random tasks within the same limits, so that only the solver learns; and `zero` (advantages 0). Every arm plays as
many matches and takes as many optimiser steps; a proposal that is rejected twice costs its four solvers their tries,
so that solvers write the most where the proposer is scripted. What they wrote is counted from the log.

The fixed tests: as many questions of each family and length, 2 or 3 numbers where a task may have 4 or 6, in one set
that may be practised (`train`; but for those that hold their own answer, as 5 + 0 does) and one that a proposal may
never pose (`test`). Accuracy is that of sampled answers. Differences are paired over seeds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from analysis.panels import colours, curve, fit, legend, points, sheet, written
from arena.cli.loop import wait
from arena.doctor import environment
from arena.evaluate.evaluation import evaluate
from arena.evaluate.specs import Contenders, kept_iterations
from arena.play.settings import GameSpec
from arena.statistics import ANY, COUNT, SHARE, Bounds, Interval, mean_ci, paired_ci
from arena.store.reader import RunReader

RESULTS = Path(__file__).parent / "results"
RECIPE = ["--recipe", "proposer_solver-nano"]
ARMS: dict[str, list[str]] = {
    "frontier": [],
    "hard": ["game.options.pay=hard"],
    "solver_only": ["seats.proposer.policy=random"],
    "zero": ["credit.estimator=zero"],
}
CHOSEN = ["frontier", "solver_only"]
POLICIES = ("proposer", "solver")
SPLITS = ("test", "train")
LEVELS = [(family, terms) for family in ("chain_sum", "products") for terms in (2, 3)]
TUNED = "The recipe's settings were chosen on seeds 100 to 102, one or two runs of each; no other seed was looked at."


def arena(*words: str) -> str:
    """Return what an arena command prints."""
    command = [sys.executable, "-m", "arena", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def run(seed: int, settings: list[str], out: Path) -> None:
    """One run of the recipe with these settings."""
    words = [word for setting in settings for word in ("--set", setting)]
    arena("run", "selfplay", *RECIPE, "--seed", str(seed), "--out", str(out), "--json", *words)


class Warm(NamedTuple):
    """Start of a seed's runs."""

    weights: dict[str, Path]
    """By policy."""
    accuracy: dict[str, dict[str, float]]


def warm(seed: int, folder: Path, questions: int) -> Warm:
    """Weights that have imitated, and learned nothing by themselves."""
    out, weights = folder / f"warm-{seed}", {name: folder / f"{name}-{seed}" for name in POLICIES}
    once = ["iterations=1", "learn.lr=0.0", "play.matches=1"]
    run(seed, [*(f"policies.{name}.model=nano-{seed}" for name in POLICIES), *once], out)
    for name, to in weights.items():
        arena("export", str(out), "--policy", name, "--to", str(to))
    return Warm(weights, accuracy(str(weights["solver"]), questions))


def accuracy(contender: str, questions: int) -> dict[str, dict[str, float]]:
    """The share of right answers by split and level, on the same questions for everybody."""
    (who,) = wait(Contenders("nano_solver").load(contender))
    found: dict[str, dict[str, float]] = {}
    for split, (family, terms) in product(SPLITS, LEVELS):
        task = {family: {"min_terms": terms, "max_terms": terms, "min_digits": 1, "max_digits": 1}}
        game = GameSpec(name="reasoning", options={"task": task, "split": split})
        (result,) = wait(evaluate(who, [], game, questions, seed=0))
        found.setdefault(split, {})[f"{family} {terms}"] = result.mean("score").estimate
    return found


def played(out: Path) -> list[list[dict[str, Any]]]:
    """The matches of each iteration."""
    log = RunReader(out).log
    return [log.read(k, streams=False) for k in log.iterations()]


def proposals(iterations: list[list[dict[str, Any]]]) -> dict[str, list[float]]:
    """Return what was proposed in each iteration and its outcome: the share of accepted tasks, and means over those."""
    asked = [[row["report"] for row in rows if row["report"]["valid"]] for rows in iterations]
    return {
        "accepted": [len(tasks) / len(rows) for tasks, rows in zip(asked, iterations, strict=True)],
        "s": [mean(task["s"] for task in tasks) for tasks in asked],
        "in between": [mean(0 < task["s"] < 1 for task in tasks) for tasks in asked],
        "terms": [mean(task["terms"] for task in tasks) for tasks in asked],
        "digits": [mean(task["digits"] for task in tasks) for tasks in asked],
        "products": [mean(task["family"] == "products" for task in tasks) for tasks in asked],
        "distinct": [len({task["task"] for task in tasks}) / max(len(tasks), 1) for tasks in asked],
    }


def budget(iterations: list[list[dict[str, Any]]]) -> dict[str, int]:
    """Count what the solvers wrote in the whole run: answers, and tokens."""
    turns = [turn for rows in iterations for row in rows for turn in row["turns"] if turn["seat"] != "proposer"]
    return {"answers": len(turns), "tokens": sum(turn["tokens"] for turn in turns)}


def mean(values: Iterable[float]) -> float:
    """Return the mean of any number of values; 0 of none."""
    return float(np.mean(found)) if (found := list(values)) else 0.0


def play_all(seed: int, folder: Path, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """All arms of a seed, from one warm start."""
    begin = warm(seed, folder, chosen.questions)
    return [play(arm, seed, begin, folder, chosen) for arm in chosen.arms]


def play(arm: str, seed: int, begin: Warm, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """One run: accuracy at its beginning, middle and end, what was proposed, and what it cost."""
    out, started = folder / f"{arm}-{seed}", time.perf_counter()
    begun = [f"policies.{name}.model={path}" for name, path in begin.weights.items()]
    begun += [f"policies.{name}.imitate=null" for name in POLICIES]
    run(seed, [*begun, *chosen.set, *ARMS[arm], "checkpoint.keep=100"], out)
    later = {str(k): accuracy(f"{out}@{k}:solver", chosen.questions) for k in kept_iterations(out) if k}
    scores = {"0": begin.accuracy} | later
    seconds = round(time.perf_counter() - started, 1)
    told = ", ".join(
        f"{split} {' '.join(f'{mean(s[split].values()):.3f}' for s in scores.values())}" for split in SPLITS
    )
    print(f"{arm} seed {seed}: {told}; {seconds:.0f} s", flush=True)
    return {
        "arm": arm, "seed": seed, "seconds": seconds, "solver": budget(played(out)),
        "accuracy": scores, "proposals": proposals(played(out)),
    }  # fmt: skip


def summary(runs: list[dict[str, Any]], arms: list[str]) -> dict[str, Any]:
    """Figures with 95 % intervals over seeds: accuracy by split, arm, iteration, at the end by level too; the first
    arm's less each other's, paired; and what solvers wrote."""
    found: dict[str, Any] = {}
    for split in SPLITS:
        curves = {arm: [r["accuracy"] for r in runs if r["arm"] == arm] for arm in arms}
        ends = {arm: [list(row.values())[-1][split] for row in rows] for arm, rows in curves.items()}
        found[split] = {
            "accuracy": {
                arm: {k: ci(mean(row[k][split].values()) for row in rows) for k in rows[0]}
                for arm, rows in curves.items()
            },
            "levels": {arm: {level: ci(end[level] for end in rows) for level in rows[0]} for arm, rows in ends.items()},
            f"{arms[0]}_minus": {arm: difference(ends[arms[0]], ends[arm]) for arm in arms[1:]},
        }
    for wrote in ("answers", "tokens"):
        found[f"solver {wrote}"] = {
            arm: ci((r["solver"][wrote] for r in runs if r["arm"] == arm), COUNT) for arm in arms
        }
    return found


def difference(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Ours less theirs by level, and on all of them, paired over seeds."""
    before, after = ([row | {"all": mean(row.values())} for row in rows] for rows in (theirs, ours))
    return {
        level: paired_ci([row[level] for row in before], [row[level] for row in after], SHARE)._asdict()
        for level in ("all", *ours[0])
    }


def ci(values: Iterable[float], bounds: Bounds = SHARE) -> dict[str, float]:
    """A mean over seeds with its interval."""
    return mean_ci([float(value) for value in values], bounds)._asdict()


PANELS = {
    "train": "accuracy: may be practised", "test": "accuracy: never practised",
    "s": "right answers to a task", "terms": "numbers in a task",
}  # fmt: skip
"""Titles of the panels: what is claimed first, then what the proposer does."""


def draw(result: dict[str, Any], arms: list[str]) -> Figure:
    """Accuracy on both question sets, with intervals; s and the length of tasks over iterations."""
    runs = result["runs"]
    seeds = len(runs) // len(arms)
    figure, axes = sheet(
        list(PANELS.values()), f"proposer_solver-nano, {seeds} seeds (thin), their mean, 95 % intervals"
    )
    for axis, name in zip(axes, PANELS, strict=True):
        for place, (arm, colour) in enumerate(colours(arms).items()):
            if name in SPLITS:
                at = result["summary"][name]["accuracy"][arm]
                points(axis, list(map(int, at)), [Interval(**told) for told in at.values()], arm, colour, place)
            else:
                values = [run["proposals"][name] for run in runs if run["arm"] == arm]
                bounds = SHARE if name == "s" else ANY
                end = mean_ci([row[-1] for row in values], bounds)
                curve(axis, range(1, len(values[0]) + 1), values, end, arm, colour, place)
        fit(axis, COUNT if name == "terms" else SHARE)
    legend(figure)
    return figure


def main() -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed; settings were tuned on others, from 100")
    parser.add_argument("--arms", nargs="+", default=CHOSEN, choices=list(ARMS))
    parser.add_argument("--questions", type=int, default=80, help="of each level and split")
    parser.add_argument("--set", action="append", default=[], help="one setting laid over all arms, A.B=C")
    parser.add_argument("--out", type=Path, default=RESULTS / "proposer.json", help="the figure lies beside it")
    parser.add_argument("--redraw", action="store_true", help="sum up and draw what --out holds, without running")
    chosen = parser.parse_args()
    if chosen.redraw:
        result = json.loads(chosen.out.read_text())
        write(result, list(dict.fromkeys(run["arm"] for run in result["runs"])), chosen.out)
        return
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            runs += play_all(seed, Path(folder), chosen)
            command = " ".join(["python benchmarks/proposer.py", *sys.argv[1:]])
            head = {"command": command, "settings": chosen.set, "tuning": TUNED, "machine": environment()}
            write(head | {"summary": {}, "runs": runs}, chosen.arms, chosen.out)


def write(result: dict[str, Any], arms: list[str], out: Path) -> None:
    """The JSON and the figure of the seeds that are done, and the differences on the terminal."""
    found = result["summary"] = summary(result["runs"], arms)
    out.write_text(json.dumps(result, indent=1) + "\n")
    written(draw(result, arms), out.with_suffix(".png"))
    for split in SPLITS:
        for other, differences in found[split][f"{arms[0]}_minus"].items():
            e = differences["all"]
            print(f"{split}: {arms[0]} - {other} {e['estimate']:+.3f} [{e['low']:+.3f}, {e['high']:+.3f}]")


if __name__ == "__main__":
    main()
