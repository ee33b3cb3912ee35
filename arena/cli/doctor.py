"""`arena doctor`: check the machine or a cluster, and estimate the memory that a model needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from arena.cli.console import PlainConsole
from arena.cli.contenders import Json
from arena.cli.tables import Cell, show_line, show_table
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.doctor import Finding
    from arena.fits.plan import MemoryNeed, MemoryPlanner

GB = 1e9


def doctor(
    model: Annotated[
        str, typer.Option(help="Model to examine: a built-in name, a folder, a config.json, or owner/name on the hub.")
    ] = "",
    adapters: Annotated[
        int | None,
        typer.Option(min=0, max=1024, help="With --model: number of adapters that learn; 0 trains all weights."),
    ] = None,
    recipe: Annotated[str, typer.Option(help="With --model: recipe with the settings; default negotiation.")] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="With --model: override a setting; repeatable."),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=1, max=1 << 24, help="With --model: tokens of a dialogue; default 1024.")
    ] = None,
    scale: Annotated[
        str, typer.Option(metavar="A=N,…", help="Check a cluster for a run at this scale: trainers=2,address=auto.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Check that this machine can run Arena, with --model which settings fit it, or with --scale a cluster.

    Exits with code 1 if a check fails.

    Example: arena doctor --model smollm2-135m-instruct --adapters 2 --set learn.token_budget=1024
    """
    if scale:
        if model or recipe or set_ or adapters is not None or context is not None:
            raise ConfigError("--scale checks a cluster only: leave the other options out")
        is_fine = _check_cluster(scale, as_json)
    elif not model:
        if recipe or set_ or adapters is not None or context is not None:
            raise ConfigError("add --model: the other options need one, such as --model smollm2-135m-instruct")
        is_fine = _check_machine(as_json)
    else:
        is_fine = _check_fit(model, adapters, recipe or "negotiation", set_ or [], context, as_json)
    if not is_fine:
        raise typer.Exit(1)


def _check_machine(as_json: bool) -> bool:
    """Print the findings on this machine. Returns True if all checks passed."""
    from arena.doctor import examine

    return _report_findings(examine(), as_json)


def _check_cluster(settings: str, as_json: bool) -> bool:
    """Print the findings on the cluster of `--scale`. Returns True if all checks passed."""
    from arena.cli.loop import wait
    from arena.config.layers import compose
    from arena.config.sources import parse_scale, recipe_layer
    from arena.doctor import examine_cluster

    scale = compose([recipe_layer("negotiation-nano"), *parse_scale(settings)]).scale
    if scale is None:
        raise ConfigError("--scale none is one process: run arena doctor without --scale")
    return _report_findings(wait(examine_cluster(scale)), as_json)


def _report_findings(findings: list[Finding], as_json: bool) -> bool:
    """Print the findings, with a fix for each failed check. Returns True if all checks passed."""
    from arena.doctor import findings_to_rows

    if as_json:
        print(json.dumps(findings_to_rows(findings)))
    else:
        console, width = PlainConsole(), max(len(finding.what) for finding in findings)
        for finding in findings:
            mark = Text("ok  ", style="green") if finding.ok else Text("fix ", style="red")
            console.print(mark.append(f"{finding.what:<{width}}  {finding.found}", style="default"), soft_wrap=True)
            if not finding.ok:
                show_line(console, finding.fix, "yellow", indent=width + 6)
    return all(finding.ok for finding in findings)


def _check_fit(
    model: str, adapters: int | None, recipe: str, settings: list[str], context: int | None, as_json: bool
) -> bool:
    """Print the memory that the model needs, for the given settings and alternatives. Returns True if it fits."""
    from agents.bf16 import can_pack_here
    from arena.config.layers import compose
    from arena.config.sources import recipe_layer, set_layer
    from arena.fits.machine import find_devices
    from arena.fits.plan import CONTEXT, MemoryPlanner, list_methods
    from arena.fits.shape import read_shape

    experiment = compose([recipe_layer(recipe), *map(set_layer, settings)])
    shape, files = read_shape(model)
    planner = MemoryPlanner(
        shape=shape,
        files=files,
        experiment=experiment,
        context=context or CONTEXT,
        devices=find_devices(),
        packs=can_pack_here(),
    )
    alternatives, method = list_methods(experiment, _resolve_precision(experiment.precision), adapters)
    needs = planner.compute_needs(alternatives, method)
    requested = next(need for need in needs if need.asked)
    if as_json:
        print(json.dumps(_to_json(model, recipe, planner, needs)))
    else:
        _print_fit(PlainConsole(), model, recipe, planner, needs)
    return requested.fits


def _resolve_precision(setting: str) -> Any:
    from agents.precision import Precision
    from arena.learn.machine import find_fastest_precision

    return Precision(find_fastest_precision() if setting == "auto" else setting)


def _to_json(model: str, recipe: str, planner: MemoryPlanner, needs: list[MemoryNeed]) -> dict[str, Any]:
    from dataclasses import asdict

    experiment = planner.experiment
    return {
        "model": {"name": model, **asdict(planner.shape)},
        "settings": {
            "recipe": recipe,
            "play.in_flight": experiment.play.in_flight,
            "learn.token_budget": experiment.learn.token_budget,
            "context": planner.context,
        },
        "devices": [asdict(device) for device in planner.devices],
        "ways": [need.row() for need in needs],
    }


def _print_fit(console: Console, model: str, recipe: str, planner: MemoryPlanner, needs: list[MemoryNeed]) -> None:
    shape, experiment = planner.shape, planner.experiment
    show_line(console, f"{model}: {shape.parameters / 1e6:,.1f}M weights, {shape.layers} layers of {shape.width}")
    for device in planner.devices:
        sizes = f"{device.total / GB:.1f} GB, {device.free / GB:.1f} free now" if device.total else "size unknown"
        show_line(console, f"{device.name}: {sizes}" + (f" ({device.note})" if device.note else ""))
    load = f"{experiment.play.in_flight} matches in flight, dialogues of {planner.context:,} tokens"
    show_line(console, f"{load}, {experiment.learn.token_budget:,} tokens a pass (recipe {recipe})")
    if (capabilities := experiment.engine.capabilities).has_own_process:
        folder = ", nor is the folder in memory through which it gets weights" if capabilities.needs_folder else ""
        show_line(console, f"engine {experiment.engine.kind}: its server's own memory is not counted{folder}")
    console.print()
    _print_alternatives(console, needs)
    requested = next(need for need in needs if need.asked)
    console.print()
    columns = (requested.loading, requested.play, requested.learning, requested.between)
    sizes_by_part = {
        name: [part.get(name, 0) for part in columns] for name in dict.fromkeys(name for p in columns for name in p)
    }
    rows = [
        (name, *(f"{size / GB:.2f}" if size else "" for size in row)) for name, row in sizes_by_part.items() if any(row)
    ]
    show_table(console, ("where it goes, GB", "loading", "play alone", "learning", "play in a run"), rows)
    show_line(console, _judge_fit(requested, planner), "green" if requested.fits else "red")


def _print_alternatives(console: Console, needs: list[MemoryNeed]) -> None:
    columns = ("GB at most", "precision", "loading", "play alone", "learning", "a run", "fits", "most in_flight")
    rows: list[tuple[Cell, ...]] = []
    for need in needs:
        sizes = (*(sum(parts.values()) for parts in (need.loading, need.play, need.learning)), need.run)
        fits = Text("yes", "green") if need.fits else Text("play only" if need.fits_play else "no", "red")
        name = Text(need.way.name + (" (as asked)" if need.asked else ""), style="bold" if need.asked else "")
        largest = [_format_largest(number) for number in (need.in_flight, need.token_budget)]
        rows.append((name, str(need.way.precision), *(f"{size / GB:.2f}" for size in sizes), fits, *largest))
    show_table(console, (*columns, "token_budget"), rows)


def _format_largest(number: int) -> str:
    """Return the largest setting that fits in memory as text: `none`, a number, or `16,384 or more` if all fit."""
    from arena.fits.plan import SEARCH_LIMIT

    return f"{SEARCH_LIMIT:,} or more" if number >= SEARCH_LIMIT else f"{number:,}" if number else "none"


def _judge_fit(requested: MemoryNeed, planner: MemoryPlanner) -> str:
    """Return one line: whether the requested method fits and, if not, the changes that would make it fit."""
    required = max(sum(requested.loading.values()), requested.run)
    free = (planner.gpu or planner.devices[0]).free
    if requested.fits and free and required > free:
        return f"fits, once {required / GB:.1f} GB are free: others hold memory now"
    if requested.fits:
        return "fits, by estimates whose constants were fitted on three models (docs/what-fits.md)"
    if not requested.token_budget and not requested.in_flight:
        return "does not fit with any token budget: take an adapter, bf16, or a smaller model"
    return (
        f"does not fit: at most --set learn.token_budget={requested.token_budget} or "
        f"--set play.in_flight={requested.in_flight}, or a smaller context"
    )
