"""`arena study`: a recipe's arms with many seeds, and the verdict by the rule that the recipe states."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agents.names import nearest
from arena.cli.console import PlainConsole, note
from arena.cli.evaluate import Json, listed
from arena.cli.progress import progress
from arena.errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from arena.config.experiment import Experiment
    from arena.evaluate.study.plan import Plan, Run
    from arena.evaluate.study.results import Results
    from arena.evaluate.study.runs import Runner

STYLES = {"holds": "green", "contradicted": "red"}


def study(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (arena list recipes), or a whole experiment's file.", show_default=False)
    ],
    seeds: Annotated[int, typer.Option(min=1, max=10**4, help="How many of each arm.")] = 5,
    arms: Annotated[str, typer.Option(help="all, or some of those in its section `study`: mars,zero.")] = "all",
    out: Annotated[Path | None, typer.Option(help="The study's folder; default runs/study-NAME.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="How many runs at once; default one for each core.")
    ] = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Sum up what is there, without running.")] = False,
    as_json: Json = False,
) -> None:
    """Run the arms of a recipe with many seeds, and say whether its claim holds by the rule stated beforehand.

    Every run is an ordinary one, FOLDER/ARM-SEED. Stopped or killed at any moment, the same command goes on. Then
    FOLDER/study.json has every number, FOLDER/study.png the curves.

    Example: arena study negotiation-nano --seeds 3 --arms all --jobs 2
    """
    from arena.evaluate.study import results as found
    from arena.evaluate.study.plan import EXPERIMENT, plan
    from arena.evaluate.study.plot import plot
    from arena.evaluate.study.record import RESULT
    from arena.evaluate.study.runs import Runner, cores
    from arena.store.run import locked

    experiment = _experiment(recipe)
    folder = out or Path("runs") / f"study-{experiment.name}"
    if redraw and not any((folder / name).exists() for name in (EXPERIMENT, RESULT)):
        raise ConfigError(f"--redraw: there is no study in {folder}: name its folder with --out")
    planned = plan(experiment, folder, _chosen(experiment, arms), seeds, _fitted, note)
    runner = Runner(planned, jobs or cores())
    if not redraw:
        with locked(folder):
            _run(runner, as_json)
    results = found.collected(planned)
    data = found.write(planned, results, _about())
    if any(results.curves.values()) and not plot(results, folder / "study.png"):
        note("no picture without matplotlib: pip install 'arena-selfplay[analysis]', then --redraw")
    print(json.dumps(data)) if as_json else _show(PlainConsole(), planned, results)
    if runner.failures:
        raise typer.Exit(1)


def _experiment(recipe: str) -> Experiment:
    """A recipe by its name, or what a file says."""
    from arena.config.layers import compose
    from arena.config.sources import file_layer, recipe_layer

    is_file = recipe.endswith((".yaml", ".yml")) or "/" in recipe
    return compose([file_layer(Path(recipe)) if is_file else recipe_layer(recipe)])


def _chosen(experiment: Experiment, arms: str) -> list[str]:
    """The arms that are wanted, in the order of the experiment; with the first one, which others are compared with."""
    from arena.config.arms import study_of

    known, wanted = study_of(experiment).names, listed(arms)
    if wanted == ["all"]:
        return known
    for arm in wanted:
        if arm not in known:
            raise ConfigError(f"--arms: no arm '{arm}'{nearest(arm, known)} (all, or some of {', '.join(known)})")
    if not wanted:
        raise ConfigError(f"--arms: name some of {', '.join(known)}, or all")
    return [arm for arm in known if arm in (known[0], *wanted)]


def _fitted(experiment: Experiment) -> Experiment:
    """All that a run would refuse, refused before there is a folder; a thread each, one precision for all runs."""
    from arena.cli.loop import wait
    from arena.config.arms import study_of, with_arm
    from arena.preflight import fitted, preflight

    one = experiment.model_copy(update={"threads": 1 if experiment.threads == "auto" else experiment.threads})
    for arm in study_of(experiment).names:
        wait(preflight(with_arm(one, arm), lambda what: None))
    return fitted(one)


def _run(runner: Runner, quiet: bool) -> None:
    """Run what is due, with progress; a figure that there is none of is refused as soon as an iteration is done."""
    from arena.config.study import EVALUATED, PANEL
    from arena.evaluate.study.results import curve

    spec, checked = runner.plan.spec, set[str]()
    figures = [name for name in (spec.figure, *spec.also) if not name.startswith((EVALUATED, PANEL))]

    def step(run: Run, more: int) -> None:
        if run.arm not in checked:
            for figure in figures:
                curve(run, figure)
            checked.add(run.arm)
        for _ in range(more):
            one_more()

    with progress(runner.left, quiet, what="iterations") as one_more:
        try:
            runner.run(step, note)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing that was committed is lost, the same command goes on") from None


def _about() -> dict[str, Any]:
    """The command and the machine that it ran on."""
    from arena.doctor import environment

    machine = {name: value for name, value in environment().items() if name != "command"}
    return {"command": shlex.join(["arena", *sys.argv[1:]]), "machine": machine}


def _show(console: Console, planned: Plan, results: Results) -> None:
    """A table of arms, the verdict, and what is missing."""
    from arena.cli.show_evaluate import interval
    from arena.cli.tables import print_table
    from arena.config.study import EVALUATED, PANEL
    from arena.evaluate.study.results import missing

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
    said = results.verdict
    console.print(Text(f"{said.verdict}: {said.because}", style=STYLES.get(said.verdict, "yellow")), soft_wrap=True)
    if lacking := missing(planned, results):
        console.print(Text(f"missing: {_listed([run.path.name for run in lacking])}", style="yellow"), soft_wrap=True)
    console.print(Text(f"claim: {spec.claim} ({spec.replicates}; published: {spec.published})"), soft_wrap=True)


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
