"""`arena study`: run the arms of a recipe with many seeds, and judge its claim by the stated rule."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from arena.cli.batch import NO_PLOT_NOTE, Jobs, OnRay, choose_folder, collect_provenance, describe_plan, run_batch
from arena.cli.console import PlainConsole, note
from arena.cli.contenders import Json, split_names
from arena.cli.progress import format_duration
from arena.cli.tables import format_interval, show_line, show_table
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.config.recipe import Recipe
    from arena.config.study import StudySpec
    from arena.evaluate.study.plan import Plan
    from arena.evaluate.study.results import Results

STYLES = {"holds": "green", "contradicted": "red"}
DEFAULT_SEEDS = 5
"""Seeds per arm if neither the recipe nor the command sets them."""


def study(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (arena list recipes), or an experiment file.", show_default=False)
    ],
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=10**4, help="Seeds per arm; default from the rule, else 5.", show_default=False),
    ] = None,
    arms: Annotated[str, typer.Option(help="all, or some arms of the recipe's `study` section: mars,zero.")] = "all",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override a setting in every arm; repeatable.")
    ] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="First seed; default from the recipe.")] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run two iterations of each arm and estimate the total time.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the study; default runs/study-NAME.")] = None,
    jobs: Jobs = None,
    on_ray: OnRay = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Summarise the existing runs without running more.")] = False,
    pilot: Annotated[
        Path | None,
        typer.Option(
            metavar="STUDY.JSON", help="Earlier study with other seeds, to estimate the detectable difference."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the arms of a recipe with many seeds, and judge its claim by the rule that the recipe states.

    Each run is an ordinary run in FOLDER/ARM-SEED. After an interruption, the same command continues. At the end,
    FOLDER/study.json has all numbers and FOLDER/study.png the curves.

    Example: arena study negotiation-nano --seeds 3 --arms all --jobs 2
    """
    from arena.config.arms import check_arms, require_study, select_arms
    from arena.config.sources import load_layer
    from arena.evaluate.study.overrides import list_kept_by_arms, with_settings

    first = [f"study.first_seed={first_seed}"] if first_seed is not None else []
    experiment = with_settings(load_layer(recipe), [*(set_ or []), *first])
    selected_arms = [*dict.fromkeys([require_study(experiment).arm, *select_arms(experiment, split_names(arms))])]
    check_arms(experiment)
    seeds = seeds or require_study(experiment).seeds or DEFAULT_SEEDS
    if not as_json:
        for line in list_kept_by_arms(experiment, set_ or []):
            note(line)
    folder = choose_folder("study", experiment.name, out)
    power = _estimate_power(pilot, require_study(experiment), seeds, quiet=as_json) if pilot else {}
    if rehearse:
        return _rehearse(experiment, folder, selected_arms, seeds, jobs, as_json, on_ray)
    if not (as_json or redraw):
        label = f"{experiment.name}: {len(selected_arms)} arms × {seeds} seeds"
        _announce(experiment, label, len(selected_arms) * seeds, jobs, on_ray)

    from arena.evaluate.study import results as study_results
    from arena.evaluate.study.plot import write_plot

    runner = run_batch(experiment, folder, selected_arms, seeds, jobs, as_json, redraw, on_ray=on_ray)
    results = study_results.collect(runner.plan)
    data = study_results.write(runner.plan, results, collect_provenance() | power)
    if any(results.curves.values()) and not write_plot(results, folder / "study.png"):
        note(NO_PLOT_NOTE)
    print(json.dumps(data)) if as_json else _show(PlainConsole(), runner.plan, results)
    if runner.failures:
        raise typer.Exit(1)


def _estimate_power(pilot: Path, spec: StudySpec, seeds: int, quiet: bool) -> dict[str, dict[str, object]]:
    """Estimate from a pilot study the smallest differences that `seeds` seeds could detect.

    Prints them unless `quiet`, and returns them as the record's entry `pilot`.
    """
    from arena.evaluate.study.family import POWER, predict_detectable
    from arena.evaluate.study.results import read

    smallest = predict_detectable(read(pilot), spec, seeds)
    for arm, difference in smallest.items() if not quiet else ():
        note(f"by {pilot}, {seeds} seeds show a difference of {difference:.3g} from {arm} with chance {POWER:g}")
    return {"pilot": {"file": pilot.name, "power": POWER, "smallest": smallest}}


def _rehearse(
    experiment: Recipe,
    folder: Path,
    arms: list[str],
    seeds: int,
    jobs: int | None,
    as_json: bool,
    on_ray: str | None,
) -> None:
    """Run two iterations of each arm in a separate folder, and print the estimated time of the study.

    Exits with code 1 if a run failed.
    """
    from arena.config.arms import with_arm
    from arena.config.experiment import Experiment
    from arena.evaluate.study.rehearsal import REHEARSED, estimate_seconds, make_rehearsal

    if not isinstance(experiment, Experiment):  # stages may count epochs or steps instead
        raise ConfigError("--rehearse: stages of a pipeline have no common number of iterations to shorten")
    short = make_rehearsal(experiment)
    if not as_json:
        label = f"rehearsal of {experiment.name}: {REHEARSED} iterations of {len(arms)} arms"
        _announce(short, label, len(arms), jobs, on_ray)

    from arena.evaluate.study.results import collect

    runner = run_batch(short, get_rehearsal_folder(folder), arms, 1, jobs, as_json, on_ray=on_ray)
    collect(runner.plan)  # raises ConfigError for an unknown figure of an evaluation
    parallel = runner.jobs
    seconds = {run.arm: estimate_seconds(run.path, with_arm(experiment, run.arm)) for run in runner.plan.runs}
    known = [each for each in seconds.values() if each is not None]
    is_complete = len(known) == len(arms)
    total = max(sum(known) * seeds / min(parallel, len(arms) * seeds), *known) if is_complete else None
    if as_json:
        data = {"rehearsed": str(get_rehearsal_folder(folder)), "failures": runner.failures, "seconds": seconds}
        print(json.dumps({**data, "seeds": seeds, "jobs": parallel, "whole": total}))
    else:
        for arm, each in seconds.items():
            iterations = with_arm(experiment, arm).iterations
            print(f"{arm}: a run of {iterations} iterations takes about {_format_seconds(each)}")
        size = f"{len(arms)} arms × {seeds} seeds, {parallel} at a time"
        print(f"whole study, {size}: about {_format_seconds(total)}; no verdict from a rehearsal")
    if runner.failures:
        raise typer.Exit(1)


def get_rehearsal_folder(folder: Path) -> Path:
    """Return the rehearsal's folder beside the study's; the study's may be `.`, which has no name to extend."""
    return Path(f"{os.path.abspath(folder) if folder.name in ('', '..') else folder}-rehearsal")


def _format_seconds(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else format_duration(seconds)


def _announce(experiment: Recipe, label: str, runs: int, jobs: int | None, on_ray: str | None) -> None:
    """Print the number and estimated time of the runs, before they are loaded and checked, which takes a while."""
    note(describe_plan(label, runs, jobs, experiment.study.minutes if experiment.study else None, on_ray))


def _show(console: Console, plan: Plan, results: Results) -> None:
    """Print the arms' figures, their optimiser steps and tokens, the verdict, missing runs and the claim."""
    from arena.config.study import EVALUATED, PANEL

    spec = results.spec
    last = "before and after" if spec.figure.startswith((EVALUATED, PANEL)) else f"last {spec.last} iterations"
    title = f"{results.name}: {spec.figure}, {results.seeds} seeds, {last} (95 % intervals)"
    columns = ("arm", "seeds", "first", "last", "change", f"{spec.arm} - arm")
    for heading, arms in {title: results.arms, **results.secondary}.items():
        show_line(console, heading, "bold")
        rows = [
            (arm.arm, str(arm.seeds), *map(format_interval, (arm.first, arm.last, arm.change)),
             format_interval(arm.difference) if arm.difference else "")
            for arm in arms
        ]  # fmt: skip
        show_table(console, columns, rows)
    work = [
        (arm, *(f"{fmean(values):.0f}" for values in zip(*runs.values(), strict=True)))
        for arm, runs in results.work.items()
        if runs
    ]
    if work:  # with equally many matches, an arm may still take more optimiser steps
        show_table(console, ("learned per run", "optimiser steps", "tokens"), work)
    show_line(
        console, f"{results.verdict.verdict}: {results.verdict.because}", STYLES.get(results.verdict.verdict, "yellow")
    )
    if line := describe_missing_runs(plan, results):
        show_line(console, line, "yellow")
    show_line(console, f"claim: {spec.claim} ({spec.replicates}; published: {spec.published})")


def describe_missing_runs(plan: Plan, results: Results) -> str:
    """Return a line that names up to six unfinished runs; "" if all are finished."""
    from arena.evaluate.study.results import list_missing_runs

    names = [run.path.name for run in list_missing_runs(plan, results)]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"missing: {', '.join(names[:6])}{more}" if names else ""
