"""`arena sweep`: every combination of some settings with some seeds, and which does best: for tuning, no verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.batch import Jobs, OnRay, about, begin_line, carry_out, folder_of
from arena.cli.console import PlainConsole, note
from arena.cli.evaluate import Json, listed
from arena.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arena.evaluate.study.plan import Plan
    from arena.evaluate.study.ranking import Ranked
    from arena.evaluate.study.results import Results

RECORD = "sweep.json"


def sweep(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (arena list recipes), or a whole experiment's file.", show_default=False)
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C,D",
            help="A key and the values to try, or one for all runs; repeatable. Default the recipe's `study.grid`.",
        ),
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Arms of its study that each try all: all, or mars,zero; default the recipe alone."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10**4, help="How many of each setting.")] = 3,
    first_seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**61, help="The first of the seeds; default one that the recipe does not judge."),
    ] = None,
    figure: Annotated[
        str, typer.Option(help="What is compared; default the figure of the recipe's study, or mean_payoff.")
    ] = "",
    less_is_better: Annotated[bool, typer.Option("--less-is-better", help="The lowest figure is the best.")] = False,
    most: Annotated[int, typer.Option(min=1, max=10**4, help="How many runs may be begun by this.")] = 200,
    out: Annotated[Path | None, typer.Option(help="The sweep's folder; default runs/sweep-NAME.")] = None,
    jobs: Jobs = None,
    on_ray: OnRay = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Sum up what is there, without running.")] = False,
    as_json: Json = False,
) -> None:
    """Run every combination of some settings with some seeds, and list them, best first: for tuning, without a verdict.

    Values are YAML between commas. With --arms each arm of the recipe's study tries all of them: a baseline gets as
    much tuning as the mechanism. Every run is an ordinary one, FOLDER/SETTING-SEED. Stopped or killed at any moment,
    the same command goes on. Then FOLDER/sweep.json has every number.

    Example: arena sweep negotiation-nano --set learn.lr=1e-4,3e-4 --set learn.minibatches=2,4 --seeds 3
    """
    from arena.config.arms import check_arms, chosen_arms, study_of
    from arena.config.layers import compose
    from arena.config.sources import named_layer
    from arena.evaluate.study.grid import build_grid, count_settings, read_axes, recipe_axes, sweep_experiment

    base = named_layer(recipe)
    swept_axes = read_axes(set_) if set_ else recipe_axes(base)
    if not swept_axes:
        raise ConfigError("what is to be tried? Add --set with the values of a key, such as --set learn.lr=1e-4,3e-4")
    tuned = [""] if arms is None else chosen_arms(compose([base]), listed(arms))
    settings = count_settings(swept_axes)
    runs = settings * len(tuned) * seeds
    what = f"{settings} settings" + (f" of {len(tuned)} arms" if arms else "") + f" × {seeds} seeds"
    if runs > most:
        raise ConfigError(f"{what} are {runs} runs, more than {most}: try fewer values, or allow them with --most")
    points = build_grid(swept_axes, tuned)
    experiment = sweep_experiment(base, points, seeds, figure, less_is_better, first_seed)
    check_arms(experiment)
    names = list(study_of(experiment).arms)
    if not (as_json or redraw):
        note(begin_line(f"sweep of {experiment.name}: {what}", runs, jobs, study_of(experiment).minutes, on_ray))

    from arena.evaluate.study import ranking
    from arena.evaluate.study import results as found

    folder = folder_of("sweep", experiment.name, out)
    runner = carry_out(experiment, folder, names, seeds, jobs, as_json, redraw, RECORD, on_ray)
    results = found.collect(runner.plan)
    ranked = ranking.rank(results, points)
    told = {"grid": swept_axes, "ranking": ranking.to_json(ranked)}
    data = found.write(runner.plan, results, about() | told)
    print(json.dumps(data)) if as_json else _show(PlainConsole(), runner.plan, results, ranked)
    if runner.failures:
        raise typer.Exit(1)


def _show(console: Console, plan: Plan, results: Results, ranked: Sequence[Ranked]) -> None:
    """A table of the settings, best first; what is missing, and what the numbers are not."""
    from arena.cli.show_evaluate import interval
    from arena.cli.study import missing_line
    from arena.cli.tables import print_table

    spec = plan.spec
    best = "the lowest first" if spec.verdict.less_is_better else "the highest first"
    title = f"{results.name}: {spec.figure}, {results.seeds} seeds, {best} (95 % intervals over seeds)"
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    arms = any(of.arm for of in ranked)
    for column in (*(["arm"] if arms else []), "setting", "seeds", spec.figure, "run"):
        table.add_column(column)
    for of in ranked:
        arm = [of.arm] if arms else []
        table.add_row(*arm, " ".join(of.settings), str(len(of.values)), interval(of.mean), of.name)
    print_table(console, table)
    if line := missing_line(plan, results):
        console.print(line, soft_wrap=True)
    last = spec.first_seed + results.seeds - 1
    seeds = f"seeds {spec.first_seed} to {last}" if last > spec.first_seed else f"seed {last}"
    of_many = "of each arm" if arms else f"of {len(ranked)}"
    said = f"for tuning on {seeds}, no verdict: the best {of_many} is partly luck, so judge it on other seeds"
    console.print(Text(said), soft_wrap=True)
