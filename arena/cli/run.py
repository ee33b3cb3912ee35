"""`arena run selfplay` and `arena resume`: the options become an experiment, the experiment a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer.core import TyperGroup

from arena.cli import catalogue, evaluate
from arena.cli.console import PlainConsole, print_rows
from arena.cli.evaluate import Json
from arena.errors import ConfigError
from arena.process import loading

if TYPE_CHECKING:
    from typer.core import TyperCommand

    from arena.cli.live import Screen, Style
    from arena.config.experiment import Experiment


class Runs(TyperGroup):
    """`arena run`, for those too who give a recipe's name as if it were a command."""

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """The command of this name; ConfigError says how a recipe of this name is run."""
        if own := super().get_command(ctx, cmd_name):
            return own  # type: ignore[return-value]
        from arena.config.sources import recipe_names

        if cmd_name in recipe_names():
            raise ConfigError(f"{cmd_name} is a recipe: arena run selfplay --recipe {cmd_name}")
        return None


run_app = typer.Typer(help="Run an experiment.", no_args_is_help=True, cls=Runs)

Scale = Annotated[
    str,
    typer.Option(
        metavar="A=N,…", help="Ranks and engines in processes of their own: trainers=2,engines=2; none is one process."
    ),
]
Run = Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)]


@run_app.command("selfplay")
def run_selfplay(
    game: Annotated[str, typer.Option(help="The game; its recipe is the starting point (arena list games).")] = "",
    recipe: Annotated[str, typer.Option(help="Another recipe than the game's own (arena list recipes).")] = "",
    config: Annotated[
        Path | None, typer.Option(help="A YAML file laid over the recipe; without --game, a whole experiment.")
    ] = None,
    arm: Annotated[str, typer.Option(help="One of the arms that its section `study` names, such as a control.")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="One setting laid over all; repeatable.")
    ] = None,
    policies: Annotated[
        str, typer.Option(help="shared: one policy at all trained seats; separate: one per role.")
    ] = "",
    engine: Annotated[str, typer.Option(help="What writes replies: in_process, or vllm where it is installed.")] = "",
    roles: Annotated[Path | None, typer.Option(help="A folder of your own role files.")] = None,
    iterations: Annotated[int | None, typer.Option(help="How many iterations.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random choice in the run.")] = None,
    scale: Scale = "",
    out: Annotated[Path | None, typer.Option(help="The run folder; default runs/NAME-TIME.")] = None,
    as_json: Json = False,
) -> None:
    """Let policies play a game against each other and learn from it; without options, list what there is to play.

    Example: arena run selfplay --game negotiation --set play.matches=32 --seed 1
    """
    if not (game or recipe or config):
        if any((arm, set_, policies, engine, roles, iterations, seed, scale, out)):
            raise ConfigError("what is to be played? Add --game, --recipe or --config (arena run selfplay lists them)")
        print_rows(catalogue.to_play(), as_json)
        return
    settings = [*([f"engine.kind={engine}"] if engine else []), *(set_ or [])]
    experiment = _experiment(Asked(game, recipe, config, arm, settings, policies, roles, iterations, seed, scale))
    with loading():
        from arena.cli.closing import close
        from arena.cli.loop import wait
        from arena.launch import start

    console, screen = _screen(experiment.iterations, as_json)
    with screen.on_screen():
        folder = wait(start(experiment, out, screen))
    close(console, folder, screen)


def resume(
    run: Run,
    iterations: Annotated[int | None, typer.Option(help="How many iterations in all, such as 40 after 20.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="A setting that may change when a run goes on; repeatable."),
    ] = None,
    scale: Scale = "",
    trust: evaluate.Trust = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its newest valid checkpoint, as if it had never stopped.

    What may change: iterations, checkpoint, evaluate, endpoint, threads, scale, limits of time and memory, learn.lr and
    learn.nonfinite (docs/run-folder.md). The run keeps what was changed when, in environment.json.

    Example: arena resume runs/latest --iterations 40 --set learn.lr=1e-5
    """
    with loading():
        from arena.cli.closing import close
        from arena.cli.loop import wait
        from arena.config.saved_config import experiment_of
        from arena.config.sources import scale_layers, set_layer
        from arena.launch import resume_run

    assignments = [*(set_ or []), *([f"iterations={iterations}"] if iterations is not None else [])]
    layers = [*(scale_layers(scale) if scale else []), *map(set_layer, assignments)]
    experiment = experiment_of(run, layers, trust)
    console, screen = _screen(experiment.iterations, as_json)
    with screen.on_screen():
        wait(resume_run(run, screen, layers, trust))
    close(console, run, screen)


@dataclass(frozen=True)
class Asked:
    """Options of `arena run selfplay`; what is empty or None is left to the recipe."""

    game: str
    recipe: str
    config: Path | None
    arm: str
    settings: Sequence[str]  # A.B=C, in the order in which they are laid
    policies: str
    roles: Path | None
    iterations: int | None
    seed: int | None
    scale: str


def _experiment(asked: Asked) -> Experiment:
    """The experiment that the options describe, checked."""
    import games
    from arena.config.layers import compose, with_policies
    from arena.config.sources import file_layer, recipe_layer, recipe_of, scale_layers, set_layer

    if asked.game and (complaint := games.complaint(asked.game)):
        raise ConfigError(f"{complaint} (arena list games)")
    own = [file_layer(asked.config)] if asked.config else []
    whole = not (asked.recipe or asked.game) and any(key in layer.data for layer in own for key in ("game", "tables"))
    layers = own if whole else [recipe_layer(asked.recipe) if asked.recipe else recipe_of(asked.game), *own]
    if asked.arm:
        from arena.config.arms import arm_layers

        below = compose(layers)
        layers += arm_layers(below, asked.arm, below.seed if asked.seed is None else asked.seed)
    roles = json.dumps(str(asked.roles)) if asked.roles else None
    flags = {"roles": roles, "iterations": asked.iterations, "seed": asked.seed}
    flags["game.name"] = json.dumps(asked.game) if asked.recipe and asked.game else None
    layers += [set_layer(f"{name}={value}") for name, value in flags.items() if value is not None]
    layers += scale_layers(asked.scale) if asked.scale else []
    layers += [set_layer(assignment) for assignment in asked.settings]
    experiment = compose(layers)
    if asked.policies not in ("", "shared", "separate"):
        raise ConfigError(f"--policies is shared or separate, not '{asked.policies}'")
    if asked.policies == "shared":
        return with_policies(experiment, "shared")
    return with_policies(experiment, "separate") if asked.policies else experiment


def _screen(iterations: int, as_json: bool) -> tuple[Console, Screen]:
    from arena.cli.live import Screen

    console = PlainConsole()
    style: Style = "json" if as_json else "table" if console.is_terminal else "lines"
    return console, Screen(console, style, iterations)
