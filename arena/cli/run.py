"""`arena run selfplay` and `arena resume`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer.core import TyperGroup

from arena.cli import catalogue
from arena.cli.console import PlainConsole
from arena.cli.contenders import Json, Trust
from arena.cli.tables import print_rows
from arena.errors import ConfigError
from arena.process import pause_garbage_collection

if TYPE_CHECKING:
    from typer.core import TyperCommand

    from arena.cli.live import Screen, Style
    from arena.config.experiment import Experiment
    from arena.config.pipeline import Pipeline
    from arena.config.sources import Layer


class RunGroup(TyperGroup):
    """Command group `arena run`. For a recipe's name in place of a command, the error names the right command."""

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Return the command of this name, or None. Raises ConfigError, with the right command, for a recipe's name."""
        if command := super().get_command(ctx, cmd_name):
            return command  # type: ignore[return-value]
        from arena.config.sources import recipe_names

        if cmd_name in recipe_names():
            raise ConfigError(f"{cmd_name} is a recipe: arena run selfplay --recipe {cmd_name}")
        return None


run_app = typer.Typer(help="Run an experiment.", no_args_is_help=True, cls=RunGroup)

Scale = Annotated[
    str,
    typer.Option(
        metavar="A=N,…", help="Ranks and engines as separate processes: trainers=2,engines=2; none is one process."
    ),
]
Run = Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)]


@run_app.command("selfplay")
def run_selfplay(
    game: Annotated[str, typer.Option(help="Game, with its default recipe (arena list games).")] = "",
    recipe: Annotated[str, typer.Option(help="Recipe (arena list recipes); default the game's own.")] = "",
    config: Annotated[
        Path | None, typer.Option(help="YAML file that overrides the recipe; without --game, an experiment file.")
    ] = None,
    arm: Annotated[str, typer.Option(help="Arm of the recipe's `study` section, such as a control.")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override a setting; repeatable.")
    ] = None,
    policies: Annotated[
        str, typer.Option(help="shared: one policy for all trained seats; separate: one per role.")
    ] = "",
    engine: Annotated[str, typer.Option(help="Inference engine, by default in_process (arena list engines).")] = "",
    roles: Annotated[Path | None, typer.Option(help="Folder of your own role files.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Number of iterations.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random choices in the run.")] = None,
    scale: Scale = "",
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME-TIME.")] = None,
    reuse: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Earlier run of the pipeline; copy its leading stages with equal settings."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train policies by play against each other; without options, list the recipes.

    Example: arena run selfplay --game negotiation --set play.matches=32 --seed 1
    """
    if not (game or recipe or config):
        if any((arm, set_, policies, engine, roles, iterations, seed, scale, out, reuse)):
            raise ConfigError("nothing to play: add --game, --recipe or --config (arena run selfplay lists recipes)")
        print_rows(PlainConsole(), catalogue.list_runnable(), as_json)
        return
    from arena.config.sources import is_pipeline

    layers = _build_layers(
        game=game, recipe=recipe, config=config, arm=arm, roles=roles, iterations=iterations, seed=seed, scale=scale,
        settings=[*([f"engine.kind={engine}"] if engine else []), *(set_ or [])],
    )  # fmt: skip
    if is_pipeline(layers):
        return _run_pipeline(_read_pipeline(layers, policies), out, reuse, as_json)
    if reuse:
        raise ConfigError("--reuse: this experiment has no stages to copy (docs/pipelines.md)")
    experiment = _compose_experiment(layers, policies)
    with pause_garbage_collection():
        from arena.cli.final_report import print_report
        from arena.cli.loop import wait
        from arena.launch import start

    console, screen = _make_screen(experiment.iterations, as_json)
    with screen.on_screen():
        folder = wait(start(experiment, out, screen))
    print_report(console, folder, screen)


def _run_pipeline(pipeline: Pipeline, out: Path | None, reuse: Path | None, as_json: bool) -> None:
    with pause_garbage_collection():
        from arena.cli.loop import wait
        from arena.pipelines.running import start_pipeline

    console, screen = _make_screen(0, as_json)
    with screen.on_screen():
        folder = wait(start_pipeline(pipeline, out, screen, reuse))
    _report_pipeline(console, folder, screen)


def _resume_pipeline(run: Path, layers: Sequence[Layer], trust: bool, as_json: bool) -> None:
    from arena.cli.loop import wait
    from arena.pipelines.running import resume_pipeline

    console, screen = _make_screen(0, as_json)
    with screen.on_screen():
        folder = wait(resume_pipeline(run, screen, layers, trust))
    _report_pipeline(console, folder, screen)


def _report_pipeline(console: Console, folder: Path, screen: Screen) -> None:
    """Print the stages of a finished pipeline, and the report of the last one that is an experiment."""
    from arena.cli.final_report import print_report
    from arena.cli.show_pipeline import show_pipeline
    from arena.config.sources import file_layer
    from arena.store.files import CONFIG
    from arena.store.stages import find_begun_stages

    if screen.style != "json":
        show_pipeline(console, folder)
        console.print()
    stages = [run for run in find_begun_stages(folder) if "iterations" in file_layer(run / CONFIG).data]
    for run in stages[-1:]:
        print_report(console, run, screen)


def resume(
    run: Run,
    iterations: Annotated[int | None, typer.Option(help="Total number of iterations, such as 40 after 20.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting that a resumed run may change; repeatable."),
    ] = None,
    scale: Scale = "",
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Resume a run from its newest valid checkpoint, or a pipeline from its unfinished stage.

    Settings that may change: iterations, checkpoint, evaluate, endpoint, threads, scale, limits of time and memory,
    learn.lr and learn.nonfinite (docs/run-folder.md). The run records each change in environment.json. In a pipeline,
    changes apply to the unfinished stage only.

    Example: arena resume runs/latest --iterations 40 --set learn.lr=1e-5
    """
    with pause_garbage_collection():
        from arena.cli.final_report import print_report
        from arena.cli.loop import wait
        from arena.config.saved_config import load_experiment
        from arena.config.sources import parse_scale, set_layer
        from arena.launch import resume_run
        from arena.store.stages import find_pipeline

    assignments = [*(set_ or []), *([f"iterations={iterations}"] if iterations is not None else [])]
    layers = [*(parse_scale(scale) if scale else []), *map(set_layer, assignments)]
    if find_pipeline(run):
        return _resume_pipeline(run, layers, trust, as_json)
    experiment = load_experiment(run, layers, trust)
    console, screen = _make_screen(experiment.iterations, as_json)
    with screen.on_screen():
        wait(resume_run(run, screen, layers, trust))
    print_report(console, run, screen)


def _build_layers(
    *,
    game: str,
    recipe: str,
    config: Path | None,
    arm: str,
    roles: Path | None,
    iterations: int | None,
    seed: int | None,
    scale: str,
    settings: Sequence[str],
) -> list[Layer]:
    """Return the layers of settings that the options of `arena run selfplay` describe.

    Empty options and None leave the setting to the recipe. `settings` are overrides as A.B=C; later ones win. Raises
    ConfigError for invalid options.
    """
    import games
    from arena.config.sources import file_layer, get_game_recipe, parse_scale, recipe_layer, set_layer

    if game and (complaint := games.find_problem(game)):
        raise ConfigError(f"{complaint} (arena list games)")
    files = [file_layer(config)] if config else []
    is_complete = not (recipe or game) and any(
        key in layer.data for layer in files for key in ("game", "tables", "source", "stages")
    )
    base = [] if is_complete else [recipe_layer(recipe) if recipe else get_game_recipe(game)]
    layers = [*base, *files]
    if arm:
        from arena.config.arms import arm_layers
        from arena.config.recipe import compose_recipe

        composed = compose_recipe(layers)
        layers += arm_layers(composed, arm, composed.seed if seed is None else seed)
    flags = {"roles": json.dumps(str(roles)) if roles else None, "iterations": iterations, "seed": seed}
    flags["game.name"] = json.dumps(game) if recipe and game else None
    layers += [set_layer(f"{name}={value}") for name, value in flags.items() if value is not None]
    layers += parse_scale(scale) if scale else []
    return layers + [set_layer(assignment) for assignment in settings]


def _compose_experiment(layers: Sequence[Layer], policies: str) -> Experiment:
    """Compose the experiment, with shared or separate policies if set. Raises ConfigError if it is invalid."""
    from arena.config.layers import compose, with_policies

    experiment = compose(layers)
    if policies not in ("", "shared", "separate"):
        raise ConfigError(f"--policies is shared or separate, not '{policies}'")
    if policies == "shared":
        return with_policies(experiment, "shared")
    return with_policies(experiment, "separate") if policies else experiment


def _read_pipeline(layers: Sequence[Layer], policies: str) -> Pipeline:
    """Read the pipeline that the layers describe. Raises ConfigError if it is invalid."""
    from arena.config.pipeline import read_pipeline

    if policies:
        raise ConfigError("--policies: a pipeline names the policies of its stages itself")
    return read_pipeline(layers)


def _make_screen(iterations: int, as_json: bool) -> tuple[Console, Screen]:
    """Return a console, and a run's screen on it: JSON lines, a table in a terminal, or plain lines."""
    from arena.cli.live import Screen

    console = PlainConsole()
    style: Style = "json" if as_json else "table" if console.is_terminal else "lines"
    return console, Screen(console, style, iterations)
