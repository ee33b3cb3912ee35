"""A panel's evaluations as a table: payoff by member and seat, before and after, beside theory's best response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from arena.cli.live import cell
from arena.cli.show_evaluate import interval, shortened, titled
from arena.cli.tables import bare_table, print_table, verdict
from arena.config.experiment import Experiment
from arena.evaluate.panel import TrainingOpponents, met_in_training
from arena.evaluate.panel_figures import Comparison, compare_cells, compare_means, payoffs, to_json
from arena.plain import printable
from arena.play.settings import GameSpec
from arena.statistics import mean_ci
from arena.store.evaluations import Evaluation, of_latest

NAMES = {"payoff": "payoff", "valid": "valid per match", "deal": "deal rate"}


def show_panel_table(
    console: Console,
    after: Evaluation,
    before: Evaluation | None,
    known: TrainingOpponents,
    who: str,
    when: Sequence[str] = (),
) -> None:
    """A line per member and seat, then the panel's mean; below, deals and valid acts; `when` names the two columns."""
    times = [*(when or ("before", "after")), "difference"] if before else ["payoff"]
    cells, means = compare_cells(after, before), compare_means(after, before)
    shares = [] if before else [name for name in ("deal", "valid") if name in means]
    best = ["best response"] if any(told.best is not None for _, told in cells) else []
    _say(console, f"{who} against the panel {after.panel}, payoff (95 % intervals over {after.deals} deals)", "bold")
    _say(console, titled(GameSpec(name=after.game, options=after.options)), "dim")
    grid = bare_table("", *times, *(NAMES[name] for name in shares), *best)
    short = shortened(dict.fromkeys(c.member for c, _ in cells))
    for one, told in cells:
        by_deal = {"deal": one.deal or [], "valid": one.valid}
        extra = [cell(mean_ci([v for v in by_deal[name] if v is not None]).estimate, "{:.2f}") for name in shares]
        grid.add_row(
            Text(f"{printable(short[one.member])}{_mark(one.member, known)}, {one.seat}"), *_row(told, extra, best)
        )
    extra = [cell(means[name].after.estimate, "{:.2f}") for name in shares]
    grid.add_row(Text("panel", style="bold"), *_row(means["payoff"], extra, best))
    print_table(console, grid)
    if (most := means["payoff"].best_against_mixture) is not None:
        _say(console, f"best play that does not know whom it meets: {most:.2f}", "dim")
    for name in ("deal", "valid") if before else ():
        if name in means:
            console.print(_line(name, means[name]), soft_wrap=True)
    _footnote(console, [c.member for c, _ in cells], known)


def show_run_panel(
    console: Console, evaluations: Sequence[Evaluation], experiment: Experiment | None, run: Path
) -> None:
    """The first evaluation of a run against its last; nothing where there is none."""
    if not (told := of_latest(evaluations)):
        return
    first, last, known = told[0], told[-1], _known(told[-1], experiment, run)
    before = first if len(told) > 1 else None
    when = [f"iteration {first.iteration}" if first.iteration else "before", f"iteration {last.iteration}"]
    console.print()
    show_panel_table(console, last, before, known, str(run), when)
    if len(told) > 2:
        curve = [f"{e.iteration}: {cell(_mean(e), '{:.2f}')}" for e in told]
        _say(console, f"panel by iteration: {' · '.join(curve)}", "dim")


def panel_json(evaluations: Sequence[Evaluation], experiment: Experiment | None, run: Path) -> dict[str, Any] | None:
    """The same for scripts, with the mean of every evaluation."""
    if not (told := of_latest(evaluations)):
        return None
    known = _known(told[-1], experiment, run)
    curve = [{"iteration": e.iteration, "payoff": _mean(e)} for e in told]
    found = to_json(told[-1], told[0] if len(told) > 1 else None)
    return {**found, "curve": curve, "met": sorted(known.met), "demonstrated": sorted(known.demonstrated)}


def _known(evaluation: Evaluation, experiment: Experiment | None, run: Path) -> TrainingOpponents:
    return met_in_training(experiment).with_own(run, [cell.member for cell in evaluation.cells])


def _mean(evaluation: Evaluation) -> float | None:
    known = [value for value in payoffs(evaluation) if value is not None]
    return sum(known) / len(known) if known else None


def _row(told: Comparison, extra: Sequence[str], best: Sequence[str]) -> list[str | Text]:
    moved = [] if told.difference is None else [verdict("payoff", told.difference, interval(told.difference))]
    first = [] if told.before is None else [interval(told.before)]
    return [*first, interval(told.after), *moved, *extra, *(cell(told.best, "{:.2f}") for _ in best)]


def _line(name: str, told: Comparison) -> Text:
    assert told.before is not None and told.difference is not None
    line = Text(f"{NAMES[name]} {interval(told.before)} → {interval(told.after)}  ", style="dim")
    return line.append(verdict(name, told.difference, interval(told.difference)))


def _mark(member: str, known: TrainingOpponents) -> str:
    return "*" if member in known.met else "†" if member in known.demonstrated else ""


def _footnote(console: Console, members: Sequence[str], known: TrainingOpponents) -> None:
    """Members that the learners know from training; the others are held out."""
    notes = ["* met in training"] if known.met & set(members) else []
    notes += (
        ["† imitated in training: its play was demonstrated"] if (known.demonstrated - known.met) & set(members) else []
    )
    if notes:
        _say(console, " · ".join([*notes, "all others it never met"]), "dim")


def _say(console: Console, text: str, style: str) -> None:
    console.print(Text(printable(text), style=style), soft_wrap=True)
