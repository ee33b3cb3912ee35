"""Gains of every run of a study with its panel, seed by seed: before, after, difference, deals, valid acts.

    python benchmarks/panel.py runs/study-negotiation     # after: arena study negotiation --seeds 10

Runs of an earlier call whose folders are gone stay in the results, where the panel is the same.
Means over the panel's members and seats, with 95 % intervals whose unit is the deal. Writes results/panel-RECIPE.json,
and a picture of the first arm: every member and seat before and after, beside the best response, means over runs.
A run counts as a success where it gained at least --least and the interval of its gain lies above 0.
A second table says how far the first arm stays below best play: over its runs, and over deals (a deal's mean of them).
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from arena.config.saved_config import experiment_of
from arena.doctor import environment
from arena.evaluate.best_play import best_against_mixture
from arena.evaluate.evaluation import deal_seeds
from arena.evaluate.panel_figures import compare_cells, compare_means
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from arena.store.evaluations import Deals, Evaluation, read_evaluations, select_latest

RESULTS = Path(__file__).parent / "results"


def run_of(folder: Path, least: float) -> dict[str, Any] | None:
    """Return what one run gained; None where it was not judged twice yet."""
    judged = select_latest(evaluations) if (evaluations := read_evaluations(folder)) else []
    if len(judged) < 2:
        return None
    arm, seed = folder.name.rsplit("-", 1)
    means = compare_means(judged[-1], judged[0])
    gain = means["payoff"].difference
    assert gain is not None
    return {
        "arm": arm, "seed": int(seed), "key": judged[-1].key, "success": gain.estimate >= least and gain.low > 0,
        **{name: compared.to_json() for name, compared in means.items()},
        "cells": {f"{c.member}, {c.seat}": of.to_json() for c, of in compare_cells(judged[-1], judged[0])},
    }  # fmt: skip


def best_by_deal(judged: Evaluation) -> list[float]:
    """Payoff of best play that does not know whom it meets, worked out where an older run does not tell."""
    members, seats = (list(dict.fromkeys(c[i] for c in met(judged))) for i in (0, 1))
    spec, seeds = GameSpec(name=judged.game, options=judged.options), deal_seeds(judged.seed, judged.deals)
    told = [judged.best_against_mixture.get(s) or best_against_mixture(members, s, spec, seeds) for s in seats]
    return [float(np.mean(row)) for row in zip(*told, strict=True)]


def met(judged: Evaluation) -> list[tuple[str, str]]:
    """Every member and seat."""
    return [(cell.member, cell.seat) for cell in judged.cells]


def gaps(judged: list[Evaluation]) -> dict[str, dict[str, Any]]:
    """Best play less payoff, by member and seat and over the panel: intervals over runs, and over deals.

    Deals without a value in some run are left out.
    """

    def values(deals: Deals) -> np.ndarray:
        return np.array(deals, dtype=float)  # None is NaN

    paid = [[values(cell.payoff) for cell in each.cells] for each in judged]
    best = [values(cell.best_response or [None] * judged[0].deals) for cell in judged[0].cells]
    below = {f"{member}, {seat}": [best[n] - run[n] for run in paid] for n, (member, seat) in enumerate(met(judged[0]))}
    below["panel"] = [np.mean(best, axis=0) - np.mean(run, axis=0) for run in paid]
    if most := best_by_deal(judged[0]):
        below["panel, not knowing whom"] = [np.array(most) - np.mean(run, axis=0) for run in paid]
    found = {}
    for name, runs in below.items():
        whole = np.array(runs)[:, ~np.isnan(runs).any(axis=0)]
        if whole.size:
            over = mean_ci(whole.mean(axis=1).tolist()), mean_ci(whole.mean(axis=0).tolist())
            found[name] = {"over_runs": [*over[0]], "over_deals": [*over[1]]}
    return found


def gap_table(below: dict[str, dict[str, Any]], near: float = 0.5) -> list[str]:
    """A row for each member and seat, as Markdown; near where the whole interval over runs is at most `near`."""
    rows = [f"| below best play | over runs | over deals | within {near:g} |", "|---|---|---|---|"]
    for name, gap in below.items():
        holds = "yes" if gap["over_runs"][2] <= near else "not shown"
        rows.append(f"| {name} | {interval_text(gap['over_runs'])} | {interval_text(gap['over_deals'])} | {holds} |")
    return rows


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
    judged = [
        select_latest(read_evaluations(f))[-1] for f in folders if f.name.rpartition("-")[0] == arm and run_of(f, 0)
    ]
    below = gaps([each for each in judged if each.key == found[0]["key"]]) if len(judged) > 1 else {}
    print(*gap_table(below) if below else (), sep="\n")
    kept = {
        "command": command, "environment": environment(), "least": args.least, "arm": arm, "runs": runs, "gaps": below
    }  # fmt: skip
    file.write_text(json.dumps(kept, indent=1) + "\n")
    drawn(kept).savefig(file.with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
