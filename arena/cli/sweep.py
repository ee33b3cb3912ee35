"""`arena sweep`: run every combination of settings with several seeds, and rank them for tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from arena.cli.batch import Jobs, OnRay, choose_folder, collect_provenance, describe_plan, run_batch
from arena.cli.console import PlainConsole, note
from arena.cli.contenders import Json, split_names
from arena.cli.tables import format_interval, show_line, show_table
from arena.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arena.evaluate.study.plan import Plan
    from arena.evaluate.study.ranking import RankedSetting
    from arena.evaluate.study.results import Results

RECORD = "sweep.json"


def sweep(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (arena list recipes), or an experiment file.", show_default=False)
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="A.B=C,D",
            help="A key and its values to try, or one value for all; repeatable. Default the recipe's `study.grid`.",
        ),
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Arms of the recipe's study to tune: all, or mars,zero; default the recipe alone."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10**4, help="Seeds per setting.")] = 3,
    first_seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**61, help="First seed; default one that the recipe's study does not use."),
    ] = None,
    figure: Annotated[
        str, typer.Option(help="Metric to compare; default that of the recipe's study, or mean_payoff.")
    ] = "",
    less_is_better: Annotated[bool, typer.Option("--less-is-better", help="Rank the lowest value first.")] = False,
    most: Annotated[int, typer.Option(min=1, max=10**4, help="Largest number of runs.")] = 200,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; default runs/sweep-NAME.")] = None,
    jobs: Jobs = None,
    on_ray: OnRay = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Summarise the existing runs without running more.")] = False,
    as_json: Json = False,
) -> None:
    """Run every combination of settings with several seeds, and rank them; for tuning, without a verdict.

    Values are YAML, separated by commas. With --arms each arm of the recipe's study tries all of them, so a baseline
    is tuned as much as the mechanism. Each run is an ordinary run in FOLDER/SETTING-SEED. After an interruption, the
    same command continues. At the end, FOLDER/sweep.json has all numbers.

    Example: arena sweep negotiation-nano --set learn.lr=1e-4,3e-4 --set learn.minibatches=2,4 --seeds 3
    """
    from arena.config.arms import check_arms, require_study, select_arms
    from arena.config.recipe import compose_recipe
    from arena.config.sources import load_layer
    from arena.evaluate.study.grid import build_grid, count_settings, make_sweep, read_axes, read_recipe_axes

    base = load_layer(recipe)
    swept_axes = read_axes(set_) if set_ else read_recipe_axes(base)
    if not swept_axes:
        raise ConfigError("no values to try: add --set with the values of a key, such as --set learn.lr=1e-4,3e-4")
    tuned = [""] if arms is None else select_arms(compose_recipe([base]), split_names(arms))
    settings = count_settings(swept_axes)
    runs = settings * len(tuned) * seeds
    size_line = f"{settings} settings" + (f" of {len(tuned)} arms" if arms else "") + f" × {seeds} seeds"
    if runs > most:
        raise ConfigError(f"{size_line} are {runs} runs, more than {most}: try fewer values, or allow them with --most")
    points = build_grid(swept_axes, tuned)
    experiment = make_sweep(base, points, seeds, figure, less_is_better, first_seed)
    check_arms(experiment)
    names = list(require_study(experiment).arms)
    if not (as_json or redraw):
        label = f"sweep of {experiment.name}: {size_line}"
        note(describe_plan(label, runs, jobs, require_study(experiment).minutes, on_ray))

    from arena.evaluate.study import ranking
    from arena.evaluate.study import results as study_results

    folder = choose_folder("sweep", experiment.name, out)
    runner = run_batch(experiment, folder, names, seeds, jobs, as_json, redraw, RECORD, on_ray)
    results = study_results.collect(runner.plan)
    ranked = ranking.rank(results, points)
    ranks = {"grid": swept_axes, "ranking": ranking.to_json(ranked)}
    data = study_results.write(runner.plan, results, collect_provenance() | ranks)
    print(json.dumps(data)) if as_json else _show(PlainConsole(), runner.plan, results, ranked)
    if runner.failures:
        raise typer.Exit(1)


def _show(console: Console, plan: Plan, results: Results, ranked: Sequence[RankedSetting]) -> None:
    """Print the settings with their figure, best first, the missing runs, and a warning about tuning."""
    from arena.cli.study import describe_missing_runs

    spec = plan.spec
    order = "the lowest first" if spec.verdict.less_is_better else "the highest first"
    show_line(
        console, f"{results.name}: {spec.figure}, {results.seeds} seeds, {order} (95 % intervals over seeds)", "bold"
    )
    has_arms = any(setting.arm for setting in ranked)
    columns = ("setting", *(["arm"] if has_arms else []), "seeds", spec.figure, "run")
    rows = [
        (
            " ".join(setting.settings),
            *([setting.arm] if has_arms else []),
            str(len(setting.values)),
            format_interval(setting.mean),
            setting.name,
        )
        for setting in ranked
    ]
    show_table(console, columns, rows)
    if line := describe_missing_runs(plan, results):
        show_line(console, line, "yellow")
    last = spec.first_seed + results.seeds - 1
    seeds = f"seeds {spec.first_seed} to {last}" if last > spec.first_seed else f"seed {last}"
    group = "of each arm" if has_arms else f"of {len(ranked)}"
    show_line(
        console, f"for tuning on {seeds}, no verdict: the best {group} is partly luck, so judge it on other seeds"
    )
