"""Gains of every run of a study with its panel, seed by seed: before, after, difference, deals, valid acts.

    python benchmarks/panel.py runs/study-negotiation     # after: arena study negotiation --seeds 10

Runs of an earlier call whose folders are gone stay in the results, where the panel is the same.
Means over the panel's members and seats, with 95 % intervals whose unit is the deal. Writes results/panel-RECIPE.json,
and a picture of the first arm: every member and seat before and after, beside the best response, means over runs.
A run counts as a success where it gained at least --least and the interval of its gain lies above 0.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from arena.config.kept import experiment_of
from arena.doctor import environment
from arena.evaluate.panel_figures import compared_cells, compared_means
from arena.statistics import mean_ci
from arena.store.evaluations import of_latest, read_evaluations

RESULTS = Path(__file__).parent / "results"


def run_of(folder: Path, least: float) -> dict[str, Any] | None:
    """Return what one run gained; None where it was not judged twice yet."""
    judged = of_latest(evaluations) if (evaluations := read_evaluations(folder)) else []
    if len(judged) < 2:
        return None
    arm, seed = folder.name.rsplit("-", 1)
    means = compared_means(judged[-1], judged[0])
    gain = means["payoff"].difference
    assert gain is not None
    return {
        "arm": arm, "seed": int(seed), "key": judged[-1].key, "success": gain.estimate >= least and gain.low > 0,
        **{name: compared.to_json() for name, compared in means.items()},
        "cells": {f"{c.member}, {c.seat}": of.to_json() for c, of in compared_cells(judged[-1], judged[0])},
    }  # fmt: skip


def merged(before: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs of now, and those of before that are not among them and were judged alike; by arm, then seed."""
    same = [run for run in before if run["key"] == found[0]["key"]]
    runs = {(run["arm"], run["seed"]): run for run in (*same, *found)}
    return [runs[place] for place in sorted(runs)]


def interval_text(interval: list[float]) -> str:
    """An interval for people."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*interval)


def table(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each run, as Markdown."""
    rows = ["| arm | seed | before | after | difference | deals | valid acts |", "|---|---|---|---|---|---|---|"]
    for run in runs:
        payoff = run["payoff"]
        figures = [interval_text(payoff[name]) for name in ("before", "after", "difference")]
        shares = [f"{run[n]['before'][0]:.2f} → {run[n]['after'][0]:.2f}" for n in ("deal", "valid") if n in run]
        rows.append(f"| {' | '.join([run['arm'], str(run['seed']), *figures, *shares])} |")
    return rows


def drawn(kept: dict[str, Any]) -> Figure:
    """A row for each member and seat, and for the panel: what was earned before and after, and what could be."""
    runs = [run for run in kept["runs"] if run["arm"] == kept["arm"]]
    names = [*runs[0]["cells"], "panel"]
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    axis = figure.add_subplot()
    axis.set_title(f"payoff of 10, before and after reward: {len(runs)} seeds, 95 % intervals")
    for name, place in zip(names, range(len(names), 0, -1), strict=True):
        told = [run["payoff"] if name == "panel" else run["cells"][name] for run in runs]
        for what, colour, lift in (("before", "tab:gray", 0.12), ("after", "tab:blue", -0.12)):
            mean = mean_ci([cell[what][0] for cell in told], (0.0, 10.0))
            error = [[mean.estimate - mean.low], [mean.high - mean.estimate]]
            axis.errorbar(
                mean.estimate, place + lift, xerr=error, fmt="o", color=colour, capsize=2,
                label=what if place == 1 else None,
            )  # fmt: skip
        best = [cell["best_response"] for cell in told if "best_response" in cell]
        if best:
            where = sum(best) / len(best)
            axis.plot(where, place, "|", color="black", ms=14, label="best response" if place == 1 else None)
    axis.set_yticks(range(len(names), 0, -1), names)
    axis.set_xlim(0, 10)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="lower right")
    return figure


def main() -> None:
    """Read the folder's runs, print the table, keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--least", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    folders = [f for f in args.study.glob("*-*") if f.is_dir() and re.fullmatch(r".+-\d+", f.name)]
    found = [run for folder in folders if (run := run_of(folder, args.least))]
    if not found:
        raise SystemExit(f"{args.study} has no run that a panel judged before and after")
    study = experiment_of(folders[0])
    file = args.out / f"panel-{study.name}.json"
    runs = merged(json.loads(file.read_text())["runs"] if file.exists() else [], found)
    print(*table(runs), sep="\n")
    counted = {arm: [r["success"] for r in runs if r["arm"] == arm] for arm in dict.fromkeys(r["arm"] for r in runs)}
    for arm, successes in counted.items():
        print(f"{arm}: {sum(successes)} of {len(successes)} gained {args.least:g} or more, beyond noise")
    arm = study.study.arm if study.study else runs[0]["arm"]
    command = f"python benchmarks/panel.py {args.study.name}"
    kept = {"command": command, "environment": environment(), "least": args.least, "arm": arm, "runs": runs}
    file.write_text(json.dumps(kept, indent=1) + "\n")
    drawn(kept).savefig(file.with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
