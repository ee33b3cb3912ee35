"""A panel's evaluations as a table: payoff by member and seat, before and after, with the best response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from arena.cli.show_evaluate import shortened, titled
from arena.cli.tables import Cell, cell, interval, say, show_table, verdict
from arena.config.experiment import Experiment
from arena.evaluate.panel import TrainingOpponents, met_in_training
from arena.evaluate.panel_figures import Comparison, compare_cells, compare_means, payoffs, to_json
from arena.plain import printable
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from arena.store.evaluations import Evaluation, select_latest

NAMES = {"payoff": "payoff", "valid": "valid per match", "deal": "deal rate"}


def show_panel_table(
    console: Console,
    after: Evaluation,
    before: Evaluation | None,
    known: TrainingOpponents,
    who: str,
    when: Sequence[str] = (),
) -> None:
    """Print a row per member and seat, the panel's mean, and the deal and valid rates.

    `known` marks members met in training, `who` names the contender, `when` the columns of before and after.
    """
    times = [*(when or ("before", "after")), "difference"] if before else ["payoff"]
    cells, means = compare_cells(after, before), compare_means(after, before)
    shares = [] if before else [name for name in ("deal", "valid") if name in means]
    has_best = any(payoff.best is not None for _, payoff in cells)
    say(console, f"{who} against the panel {after.panel}, payoff (95 % intervals over {after.deals} deals)", "bold")
    say(console, titled(GameSpec(name=after.game, options=after.options)), "dim")
    short = shortened(dict.fromkeys(c.member for c, _ in cells))
    rows: list[list[Cell]] = []
    for one, payoff in cells:
        by_deal = {"deal": one.deal or [], "valid": one.valid}
        rates = [cell(mean_ci([v for v in by_deal[name] if v is not None]).estimate, "{:.2f}") for name in shares]
        member = f"{printable(short[one.member])}{_mark(one.member, known)}, {one.seat}"
        rows.append([member, *_row(payoff, rates, has_best)])
    rates = [cell(means[name].after.estimate, "{:.2f}") for name in shares]
    rows.append([Text("panel", style="bold"), *_row(means["payoff"], rates, has_best)])
    show_table(console, ("", *times, *(NAMES[name] for name in shares), *(["best response"] * has_best)), rows)
    if (best := means["payoff"].best_against_mixture) is not None:
        say(console, f"best play without knowing the opponent: {best:.2f}", "dim")
    for name in ("deal", "valid") if before else ():
        if name in means:
            console.print(_difference_line(name, means[name]), soft_wrap=True)
    members = {c.member for c, _ in cells}
    notes = ["* met in training"] if known.met & members else []
    notes += ["† imitated in training: its play was demonstrated"] if (known.demonstrated - known.met) & members else []
    if notes:
        say(console, " · ".join([*notes, "all others it never met"]), "dim")


def show_run_panel(
    console: Console, evaluations: Sequence[Evaluation], experiment: Experiment | None, run: Path
) -> None:
    """Print a run's first panel evaluation against its last, and the mean payoff of all; nothing if it has none.

    Without `experiment`, no opponent is marked as met in training, apart from the run's own weights.
    """
    if not (latest := select_latest(evaluations)):
        return
    first, last, known = latest[0], latest[-1], _known(latest[-1], experiment, run)
    when = [f"iteration {first.iteration}" if first.iteration else "before", f"iteration {last.iteration}"]
    console.print()
    show_panel_table(console, last, first if len(latest) > 1 else None, known, str(run), when)
    if len(latest) > 2:
        curve = [f"{e.iteration}: {cell(_mean(e), '{:.2f}')}" for e in latest]
        say(console, f"panel by iteration: {' · '.join(curve)}", "dim")


def panel_json(evaluations: Sequence[Evaluation], experiment: Experiment | None, run: Path) -> dict[str, Any] | None:
    """Return a run's first and last panel evaluation and the mean payoff of all as JSON data; None if it has none."""
    if not (latest := select_latest(evaluations)):
        return None
    known = _known(latest[-1], experiment, run)
    curve = [{"iteration": e.iteration, "payoff": _mean(e)} for e in latest]
    data = to_json(latest[-1], latest[0] if len(latest) > 1 else None)
    return {**data, "curve": curve, "met": sorted(known.met), "demonstrated": sorted(known.demonstrated)}


def _known(evaluation: Evaluation, experiment: Experiment | None, run: Path) -> TrainingOpponents:
    return met_in_training(experiment).with_own(run, [cell.member for cell in evaluation.cells])


def _mean(evaluation: Evaluation) -> float | None:
    known = [value for value in payoffs(evaluation) if value is not None]
    return sum(known) / len(known) if known else None


def _row(payoff: Comparison, rates: Sequence[str], has_best: bool) -> list[Cell]:
    before = [] if payoff.before is None else [interval(payoff.before)]
    moved = payoff.difference
    difference = [] if moved is None else [verdict("payoff", moved, interval(moved))]
    return [*before, interval(payoff.after), *difference, *rates, *([cell(payoff.best, "{:.2f}")] * has_best)]


def _difference_line(name: str, rate: Comparison) -> Text:
    assert rate.before is not None and rate.difference is not None
    line = Text(f"{NAMES[name]} {interval(rate.before)} → {interval(rate.after)}  ", style="dim")
    return line.append(verdict(name, rate.difference, interval(rate.difference)))


def _mark(member: str, known: TrainingOpponents) -> str:
    return "*" if member in known.met else "†" if member in known.demonstrated else ""
