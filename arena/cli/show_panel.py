"""Tables of panel evaluations: payoff by member and seat, before and after training, and of the best response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from arena.cli.show_evaluate import format_game, shorten_names
from arena.cli.tables import Cell, format_difference, format_interval, format_number, show_line, show_table
from arena.config.experiment import Experiment
from arena.evaluate.panel import TrainingOpponents, find_training_opponents
from arena.evaluate.panel_figures import Comparison, compare_cells, compare_means, mean_payoffs, to_json
from arena.plain import printable
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from arena.store.evaluations import Evaluation, select_latest

NAMES = {"payoff": "payoff", "valid": "valid per match", "deal": "deal rate"}


def show_panel_table(
    console: Console,
    after: Evaluation,
    before: Evaluation | None,
    training_opponents: TrainingOpponents,
    contender: str,
    times: Sequence[str] = (),
) -> None:
    """Print a row per member and seat, the panel's mean, and the deal and valid rates.

    Members that are `training_opponents` are marked. `times` are the headers of the columns before and after training.
    """
    headers = [*(times or ("before", "after")), "difference"] if before else ["payoff"]
    cells, means = compare_cells(after, before), compare_means(after, before)
    shares = [] if before else [name for name in ("deal", "valid") if name in means]
    has_best = any(payoff.best is not None for _, payoff in cells)
    show_line(
        console,
        f"{contender} against the panel {after.panel}, payoff (95 % intervals over {after.deals} deals)",
        "bold",
    )
    show_line(console, format_game(GameSpec(name=after.game, options=after.options)), "dim")
    short = shorten_names(dict.fromkeys(c.member for c, _ in cells))
    rows: list[list[Cell]] = []
    for cell, payoff in cells:
        by_deal = {"deal": cell.deal or [], "valid": cell.valid}
        rates = [
            format_number(mean_ci([v for v in by_deal[name] if v is not None]).estimate, "{:.2f}") for name in shares
        ]
        member = f"{printable(short[cell.member])}{_mark(cell.member, training_opponents)}, {cell.seat}"
        rows.append([member, *_format_row(payoff, rates, has_best)])
    rates = [format_number(means[name].after.estimate, "{:.2f}") for name in shares]
    rows.append([Text("panel", style="bold"), *_format_row(means["payoff"], rates, has_best)])
    show_table(console, ("", *headers, *(NAMES[name] for name in shares), *(["best response"] * has_best)), rows)
    if (best := means["payoff"].best_against_mixture) is not None:
        show_line(console, f"best play without knowing the opponent: {best:.2f}", "dim")
    for name in ("deal", "valid") if before else ():
        if name in means:
            console.print(_format_rate_change(name, means[name]), soft_wrap=True)
    members = {c.member for c, _ in cells}
    notes = ["* met in training"] if training_opponents.opponents & members else []
    if (training_opponents.demonstrators - training_opponents.opponents) & members:
        notes.append("† imitated in training: its play was demonstrated")
    if notes:
        show_line(console, " · ".join([*notes, "the others were not met in training"]), "dim")


def show_run_panel(
    console: Console, evaluations: Sequence[Evaluation], experiment: Experiment | None, run: Path
) -> None:
    """Print a run's first panel evaluation against its last, and the mean payoff of all; nothing if it has none.

    Without `experiment`, no opponent is marked as met in training, apart from the run's own weights.
    """
    if not (latest := select_latest(evaluations)):
        return
    first, last, known = latest[0], latest[-1], _find_training_opponents(latest[-1], experiment, run)
    times = [f"iteration {first.iteration}" if first.iteration else "before", f"iteration {last.iteration}"]
    console.print()
    show_panel_table(console, last, first if len(latest) > 1 else None, known, str(run), times)
    if len(latest) > 2:
        curve = [f"{e.iteration}: {format_number(_mean_payoff(e), '{:.2f}')}" for e in latest]
        show_line(console, f"panel by iteration: {' · '.join(curve)}", "dim")


def panel_to_json(evaluations: Sequence[Evaluation], experiment: Experiment | None, run: Path) -> dict[str, Any] | None:
    """Return a run's first and last panel evaluation and the mean payoff of all as JSON data; None if it has none."""
    if not (latest := select_latest(evaluations)):
        return None
    known = _find_training_opponents(latest[-1], experiment, run)
    curve = [{"iteration": e.iteration, "payoff": _mean_payoff(e)} for e in latest]
    data = to_json(latest[-1], latest[0] if len(latest) > 1 else None)
    return {**data, "curve": curve, "met": sorted(known.opponents), "demonstrated": sorted(known.demonstrators)}


def _find_training_opponents(evaluation: Evaluation, experiment: Experiment | None, run: Path) -> TrainingOpponents:
    return find_training_opponents(experiment).with_own(run, [cell.member for cell in evaluation.cells])


def _mean_payoff(evaluation: Evaluation) -> float | None:
    known = [value for value in mean_payoffs(evaluation) if value is not None]
    return sum(known) / len(known) if known else None


def _format_row(payoff: Comparison, rates: Sequence[str], has_best: bool) -> list[Cell]:
    before = [] if payoff.before is None else [format_interval(payoff.before)]
    interval = payoff.difference
    difference = [] if interval is None else [format_difference("payoff", interval, format_interval(interval))]
    return [
        *before,
        format_interval(payoff.after),
        *difference,
        *rates,
        *([format_number(payoff.best, "{:.2f}")] * has_best),
    ]


def _format_rate_change(name: str, rate: Comparison) -> Text:
    assert rate.before is not None and rate.difference is not None
    line = Text(f"{NAMES[name]} {format_interval(rate.before)} → {format_interval(rate.after)}  ", style="dim")
    return line.append(format_difference(name, rate.difference, format_interval(rate.difference)))


def _mark(member: str, training_opponents: TrainingOpponents) -> str:
    return "*" if member in training_opponents.opponents else "†" if member in training_opponents.demonstrators else ""
