"""Gains of a study's runs against the panel by seed: payoff before and after learning, deals and valid acts.

    python benchmarks/panel.py runs/study-negotiation     # after: arena study negotiation --seeds 10

Earlier results of runs whose folders are gone are kept if they used the same panel. Means are over the panel's members
and seats, with 95 % intervals over deals. A run succeeds if it gained at least --least and the interval of its gain
lies above 0. A second table shows the distance of the study's arm to best play, with intervals over runs and over
deals. Writes results/panel-RECIPE.json, and a picture of the study's arm: mean payoffs before and after by member and
seat, with the best response.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from arena.config.saved_config import load_experiment
from arena.doctor import describe_environment
from arena.evaluate.best_play import compute_best_against_mixture
from arena.evaluate.evaluation import draw_deal_seeds
from arena.evaluate.panel_figures import compare_cells, compare_means
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from arena.store.evaluations import Deals, Evaluation, read_evaluations, select_latest

RESULTS = Path(__file__).parent / "results"


def summarize_run(folder: Path, min_gain: float) -> dict[str, Any] | None:
    """Return one run's gains, or None if the run has fewer than two evaluations."""
    latest = select_latest(evaluations) if (evaluations := read_evaluations(folder)) else []
    if len(latest) < 2:
        return None
    arm, seed = folder.name.rsplit("-", 1)
    means = compare_means(latest[-1], latest[0])
    gain = means["payoff"].difference
    assert gain is not None
    return {
        "arm": arm, "seed": int(seed), "key": latest[-1].key, "success": gain.estimate >= min_gain and gain.low > 0,
        **{name: compared.to_json() for name, compared in means.items()},
        "cells": {f"{cell.member}, {cell.seat}": cell_gain.to_json()
                  for cell, cell_gain in compare_cells(latest[-1], latest[0])},
    }  # fmt: skip


def compute_best_by_deal(evaluation: Evaluation) -> list[float]:
    """Return the mean payoff over seats, by deal, of best play that does not know the opponent.

    It is computed if the evaluation, as in older runs, lacks it.
    """
    members, seats = (list(dict.fromkeys(c[i] for c in list_cells(evaluation))) for i in (0, 1))
    spec, seeds = (
        GameSpec(name=evaluation.game, options=evaluation.options),
        draw_deal_seeds(evaluation.seed, evaluation.deals),
    )
    payoffs = [
        evaluation.best_against_mixture.get(s) or compute_best_against_mixture(members, s, spec, seeds) for s in seats
    ]
    return [float(np.mean(row)) for row in zip(*payoffs, strict=True)]


def list_cells(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return all pairs of member and seat in an evaluation."""
    return [(cell.member, cell.seat) for cell in evaluation.cells]


def compute_gaps(evaluations: list[Evaluation]) -> dict[str, dict[str, Any]]:
    """Return best play minus payoff, by member and seat and over the panel, with intervals over runs and over deals.

    Deals that lack a value in any run are left out.
    """

    def values(deals: Deals) -> np.ndarray:
        return np.array(deals, dtype=float)  # None is NaN

    payoffs = [[values(cell.payoff) for cell in each.cells] for each in evaluations]
    best = [values(cell.best_response or [None] * evaluations[0].deals) for cell in evaluations[0].cells]
    gaps = {
        f"{member}, {seat}": [best[n] - run[n] for run in payoffs]
        for n, (member, seat) in enumerate(list_cells(evaluations[0]))
    }
    gaps["panel"] = [np.mean(best, axis=0) - np.mean(run, axis=0) for run in payoffs]
    if best_by_deal := compute_best_by_deal(evaluations[0]):
        gaps["panel, not knowing whom"] = [np.array(best_by_deal) - np.mean(run, axis=0) for run in payoffs]
    result = {}
    for name, runs in gaps.items():
        complete = np.array(runs)[:, ~np.isnan(runs).any(axis=0)]
        if complete.size:
            intervals = mean_ci(complete.mean(axis=1).tolist()), mean_ci(complete.mean(axis=0).tolist())
            result[name] = {"over_runs": [*intervals[0]], "over_deals": [*intervals[1]]}
    return result


def format_gap_table(gaps: dict[str, dict[str, Any]], tolerance: float = 0.5) -> list[str]:
    """Return a Markdown table of the gaps, and whether each interval over runs ends at `tolerance` or lower."""
    rows = [f"| below best play | over runs | over deals | within {tolerance:g} |", "|---|---|---|---|"]
    for name, gap in gaps.items():
        is_within = "yes" if gap["over_runs"][2] <= tolerance else "not shown"
        rows.append(
            f"| {name} | {format_interval(gap['over_runs'])} | {format_interval(gap['over_deals'])} | {is_within} |"
        )
    return rows


def merge_runs(earlier: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new runs, and earlier ones with the same panel that they do not replace, by arm and seed."""
    same = [run for run in earlier if run["key"] == new[0]["key"]]
    runs = {(run["arm"], run["seed"]): run for run in (*same, *new)}
    return [runs[key] for key in sorted(runs)]


def format_interval(interval: list[float]) -> str:
    """Return an estimate with its interval as text."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*interval)


def format_table(runs: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table with a row per run."""
    rows = ["| arm | seed | before | after | difference | deals | valid acts |", "|---|---|---|---|---|---|---|"]
    for run in runs:
        payoff = run["payoff"]
        figures = [format_interval(payoff[name]) for name in ("before", "after", "difference")]
        shares = [f"{run[n]['before'][0]:.2f} → {run[n]['after'][0]:.2f}" for n in ("deal", "valid") if n in run]
        rows.append(f"| {' | '.join([run['arm'], str(run['seed']), *figures, *shares])} |")
    return rows


def draw(result: dict[str, Any]) -> Figure:
    """Draw payoffs before and after with the best response, in a row per member and seat and a row for the panel."""
    runs = [run for run in result["runs"] if run["arm"] == result["arm"]]
    names = [*runs[0]["cells"], "panel"]
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    axis = figure.add_subplot()
    axis.set_title(f"payoff of 10, before and after reward: {len(runs)} seeds, 95 % intervals")
    for name, row in zip(names, range(len(names), 0, -1), strict=True):
        cells = [run["payoff"] if name == "panel" else run["cells"][name] for run in runs]
        for moment, colour, offset in (("before", "tab:gray", 0.12), ("after", "tab:blue", -0.12)):
            mean = mean_ci([cell[moment][0] for cell in cells], (0.0, 10.0))
            error = [[mean.estimate - mean.low], [mean.high - mean.estimate]]
            axis.errorbar(
                mean.estimate, row + offset, xerr=error, fmt="o", color=colour, capsize=2,
                label=moment if row == 1 else None,
            )  # fmt: skip
        best = [cell["best_response"] for cell in cells if "best_response" in cell]
        if best:
            position = sum(best) / len(best)
            axis.plot(position, row, "|", color="black", ms=14, label="best response" if row == 1 else None)
    axis.set_yticks(range(len(names), 0, -1), names)
    axis.set_xlim(0, 10)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="lower right")
    return figure


def main() -> None:
    """Read the folder's runs, print the tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--least", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    folders = [f for f in options.study.glob("*-*") if f.is_dir() and re.fullmatch(r".+-\d+", f.name)]
    found = [run for folder in folders if (run := summarize_run(folder, options.least))]
    if not found:
        raise SystemExit(f"{options.study} has no run that was evaluated on a panel before and after learning")
    study = load_experiment(folders[0])
    file = options.out / f"panel-{study.name}.json"
    runs = merge_runs(json.loads(file.read_text())["runs"] if file.exists() else [], found)
    print(*format_table(runs), sep="\n")
    successes_by_arm = {
        arm: [r["success"] for r in runs if r["arm"] == arm] for arm in dict.fromkeys(r["arm"] for r in runs)
    }
    for arm, successes in successes_by_arm.items():
        print(f"{arm}: {sum(successes)} of {len(successes)} gained {options.least:g} or more, beyond noise")
    arm = study.study.arm if study.study else runs[0]["arm"]
    command = f"python benchmarks/panel.py {options.study.name}"
    evaluations = [
        select_latest(read_evaluations(f))[-1]
        for f in folders
        if f.name.rpartition("-")[0] == arm and summarize_run(f, 0)
    ]
    gaps = compute_gaps([each for each in evaluations if each.key == found[0]["key"]]) if len(evaluations) > 1 else {}
    print(*format_gap_table(gaps) if gaps else (), sep="\n")
    result = {
        "command": command, "environment": describe_environment(), "least": options.least, "arm": arm, "runs": runs,
        "gaps": gaps,
    }  # fmt: skip
    file.write_text(json.dumps(result, indent=1) + "\n")
    draw(result).savefig(file.with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
