"""`arena study`: a recipe's arms with many seeds, and the verdict by the rule that the recipe states."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.batch import NO_PICTURE, Jobs, OnRay, about, begin_line, carry_out, folder_of
from arena.cli.console import PlainConsole, note
from arena.cli.evaluate import Json, listed
from arena.cli.progress import lasting

if TYPE_CHECKING:
    from arena.config.experiment import Experiment
    from arena.config.study import StudySpec
    from arena.evaluate.study.plan import Plan
    from arena.evaluate.study.results import Results

STYLES = {"holds": "green", "contradicted": "red"}
SEEDS = 5
"""Of each arm, where neither the rule nor the command says how many."""


def study(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (arena list recipes), or a whole experiment's file.", show_default=False)
    ],
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**4, help="How many of each arm; default as the rule says, else 5.", show_default=False
        ),
    ] = None,
    arms: Annotated[str, typer.Option(help="all, or some of those in its section `study`: mars,zero.")] = "all",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="One setting laid over every arm; repeatable.")
    ] = None,
    first_seed: Annotated[
        int | None, typer.Option(min=0, help="The first of the seeds; default as the recipe says.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Two iterations of each arm, and how long the whole would take.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The study's folder; default runs/study-NAME.")] = None,
    jobs: Jobs = None,
    on_ray: OnRay = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Sum up what is there, without running.")] = False,
    pilot: Annotated[
        Path | None, typer.Option(metavar="STUDY.JSON", help="One of other seeds: says how much this could see.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the arms of a recipe with many seeds, and say whether its claim holds by the rule stated beforehand.

    Every run is an ordinary one, FOLDER/ARM-SEED. Stopped or killed at any moment, the same command goes on. Then
    FOLDER/study.json has every number, FOLDER/study.png the curves.

    Example: arena study negotiation-nano --seeds 3 --arms all --jobs 2
    """
    from arena.config.arms import check_arms, chosen_arms, study_of
    from arena.config.sources import named_layer
    from arena.evaluate.study.overrides import list_kept_by_arms, with_settings

    first = [f"study.first_seed={first_seed}"] if first_seed is not None else []
    experiment = with_settings(named_layer(recipe), [*(set_ or []), *first])
    beside = chosen_arms(experiment, listed(arms))
    chosen = [*dict.fromkeys([study_of(experiment).arm, *beside])]
    check_arms(experiment)
    seeds = seeds or study_of(experiment).seeds or SEEDS
    if not as_json:
        for line in list_kept_by_arms(experiment, set_ or []):
            note(line)
    folder = folder_of("study", experiment.name, out)
    power = _foreseen(pilot, study_of(experiment), seeds, quiet=as_json) if pilot else {}
    if rehearse:
        return _rehearse(experiment, folder, chosen, seeds, jobs, as_json, on_ray)
    what = f"{experiment.name}: {len(chosen)} arms × {seeds} seeds"
    _say(experiment, what, len(chosen) * seeds, jobs, as_json or redraw, on_ray)

    from arena.evaluate.study import results as found
    from arena.evaluate.study.plot import plot

    runner = carry_out(experiment, folder, chosen, seeds, jobs, as_json, redraw, on_ray=on_ray)
    planned = runner.plan
    results = found.collect(planned)
    data = found.write(planned, results, about() | power)
    if any(results.curves.values()) and not plot(results, folder / "study.png"):
        note(NO_PICTURE)
    print(json.dumps(data)) if as_json else _show(PlainConsole(), planned, results)
    if runner.failures:
        raise typer.Exit(1)


def _foreseen(pilot: Path, spec: StudySpec, seeds: int, quiet: bool) -> dict[str, dict[str, object]]:
    """The smallest differences that the study could see, by a pilot; said, and kept in its record."""
    from arena.evaluate.study.family import POWER, predict_visible
    from arena.evaluate.study.results import read

    least = predict_visible(read(pilot), spec, seeds)
    for arm, difference in least.items() if not quiet else ():
        note(f"by {pilot}, {seeds} seeds show a difference of {difference:.3g} from {arm} with chance {POWER:g}")
    return {"pilot": {"file": pilot.name, "power": POWER, "smallest": least}}


def _rehearse(
    experiment: Experiment,
    folder: Path,
    arms: list[str],
    seeds: int,
    jobs: int | None,
    as_json: bool,
    on_ray: str | None,
) -> None:
    """Run two iterations of each arm in a folder of its own, and say how long the whole would take."""
    from arena.config.arms import with_arm
    from arena.evaluate.study.rehearsal import REHEARSED, estimate_seconds, rehearsal

    short, own = rehearsal(experiment), rehearsed_in(folder)
    what = f"rehearsal of {experiment.name}: {REHEARSED} iterations of {len(arms)} arms"
    _say(short, what, len(arms), jobs, as_json, on_ray)

    from arena.evaluate.study.results import collect

    runner = carry_out(short, own, arms, 1, jobs, as_json, on_ray=on_ray)
    collect(runner.plan)  # raises ConfigError for an unknown figure of an evaluation
    many = runner.jobs
    took = {run.arm: estimate_seconds(run.path, with_arm(experiment, run.arm)) for run in runner.plan.runs}
    known = [seconds for seconds in took.values() if seconds is not None]
    whole = max(sum(known) * seeds / min(many, len(arms) * seeds), *known) if len(known) == len(arms) else None
    if as_json:
        told = {"rehearsed": str(own), "failures": runner.failures, "seconds": took}
        print(json.dumps({**told, "seeds": seeds, "jobs": many, "whole": whole}))
    else:
        for arm, seconds in took.items():
            iterations = with_arm(experiment, arm).iterations
            print(f"{arm}: a run of {iterations} iterations takes about {_lasting(seconds)}")
        what = f"{len(arms)} arms × {seeds} seeds, {many} at a time"
        print(f"the whole, {what}: about {_lasting(whole)}; nothing is judged here")
    if runner.failures:
        raise typer.Exit(1)


def rehearsed_in(folder: Path) -> Path:
    """Return the folder beside a study's, which may have no name of its own, as `.` has none, for its rehearsal."""
    return Path(f"{os.path.abspath(folder) if folder.name in ('', '..') else folder}-rehearsal")


def _lasting(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else lasting(seconds)


def _say(experiment: Experiment, what: str, runs: int, jobs: int | None, quiet: bool, on_ray: str | None) -> None:
    """Say at once what is to come: to load and to check takes a while."""
    if not quiet:
        note(begin_line(what, runs, jobs, experiment.study.minutes if experiment.study else None, on_ray))


def _show(console: Console, planned: Plan, results: Results) -> None:
    """A table of arms, the verdict, and what is missing."""
    from arena.cli.show_evaluate import interval
    from arena.cli.tables import print_table
    from arena.config.study import EVALUATED, PANEL

    spec = results.spec
    last = "before and after" if spec.figure.startswith((EVALUATED, PANEL)) else f"last {spec.last} iterations"
    title = f"{results.name}: {spec.figure}, {results.seeds} seeds, {last} (95 % intervals)"
    for heading, arms in {title: results.arms, **results.beside}.items():
        console.print(Text(heading, style="bold"), soft_wrap=True)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("arm", "seeds", "first", "last", "change", f"{spec.arm} minus it"):
            table.add_column(column, no_wrap=True)
        for of in arms:
            behind = interval(of.behind) if of.behind else ""
            table.add_row(of.arm, str(of.seeds), interval(of.first), interval(of.last), interval(of.change), behind)
        print_table(console, table)
    if any(results.work.values()):
        _show_work(console, results)
    said = results.verdict
    console.print(Text(f"{said.verdict}: {said.because}", style=STYLES.get(said.verdict, "yellow")), soft_wrap=True)
    if line := missing_line(planned, results):
        console.print(line, soft_wrap=True)
    console.print(Text(f"claim: {spec.claim} ({spec.replicates}; published: {spec.published})"), soft_wrap=True)


def _show_work(console: Console, results: Results) -> None:
    """Print the optimiser steps and tokens of each arm: with as many matches, one may still take more steps."""
    from statistics import fmean

    from arena.cli.tables import print_table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("learned from, a run", "optimiser steps", "tokens"):
        table.add_column(column, no_wrap=True)
    for arm, runs in results.work.items():
        if runs:
            steps, tokens = (fmean(values) for values in zip(*runs.values(), strict=True))
            table.add_row(arm, f"{steps:.0f}", f"{tokens:.0f}")
    print_table(console, table)


def missing_line(planned: Plan, results: Results) -> Text | None:
    """Return a line that names the runs which are not whole; None without any."""
    from arena.evaluate.study.results import missing_runs

    lacking = [run.path.name for run in missing_runs(planned, results)]
    return Text(f"missing: {_listed(lacking)}", style="yellow") if lacking else None


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
