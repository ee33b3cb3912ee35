"""`arena check`: check a role file, a game or an experiment before it plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli import catalogue
from arena.cli.console import PlainConsole
from arena.cli.contenders import Json
from arena.cli.progress import progress
from arena.cli.tables import show_line

if TYPE_CHECKING:
    from arena.config.pipeline import Pipeline

check_app = typer.Typer(help="Check a role file, a game or an experiment before it plays.", no_args_is_help=True)


@check_app.command("role")
def check_role_file(
    file: Annotated[str, typer.Argument(help="A role file, or a role's name.", show_default=False)],
    game: Annotated[str, typer.Option(help="Game whose facts fill the templates; default the role's own game.")] = "",
    seat: Annotated[str, typer.Option(help="Seat to show.")] = "",
    roles: Annotated[Path | None, typer.Option(help="A folder of your own role files.")] = None,
    as_json: Json = False,
) -> None:
    """Check a role file and show the prompts of a match's first turns.

    Without --seat, a role is shown at every seat, unless its name ends in a seat's name.
    """
    from agents.reply import remove_invisible

    preview = catalogue.preview_role(file, game, seat, [roles] if roles else [])
    if as_json:
        print(
            json.dumps({"role": preview.role.role} | {k: getattr(preview, k) for k in ("system", "turns", "findings")})
        )
        return
    console = PlainConsole()
    parts = [("system", preview.system)]
    parts += [(f"example {n}", f"{prompt}\n→ {reply}") for n, (prompt, reply) in enumerate(preview.examples, 1)]
    for n, (seat, turn) in enumerate(zip(preview.seats, preview.turns, strict=True)):
        parts.append((f"{seat}, turn {preview.seats[: n + 1].count(seat)}", turn))
    for title, text in parts:
        show_line(console, f"— {title} —", "bold")
        for line in remove_invisible(text, keep="\n").split("\n"):
            console.print(Text("│ ", style="dim").append(line, style="default"), soft_wrap=True)
    for finding in preview.findings:
        show_line(console, f"! {finding}", "yellow")
    show_line(console, f"{preview.role.role}: fit to play", "green")


@check_app.command("experiment")
def check_experiment(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (arena list recipes) or an experiment file.", show_default=False)
    ],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override a setting; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run all checks of an experiment that need no weights; write nothing.

    In a pipeline, stages that depend on the data of an earlier stage are left out.

    Example: arena check experiment mine.yaml --set play.matches=64
    """
    from arena.cli.loop import wait
    from arena.config.arms import check_arms
    from arena.config.layers import to_yaml
    from arena.config.pipeline import Pipeline
    from arena.config.recipe import compose_recipe
    from arena.config.sources import load_layer, set_layer
    from arena.preflight import preflight

    experiment = compose_recipe([load_layer(recipe), *map(set_layer, set_ or [])])
    if experiment.study:
        check_arms(experiment)
    console = PlainConsole()
    if isinstance(experiment, Pipeline):
        _check_pipeline(experiment, console, as_json)
        return
    prepared = wait(preflight(experiment, lambda step: None))
    if as_json:
        print(json.dumps({"experiment": to_yaml(prepared.experiment), "notes": list(prepared.notes)}))
        return
    for table in experiment.all_tables():
        for seat, spec in table.seats.items():
            learns = " (learns)" if experiment.trained(spec.policy) else ""
            show_line(console, f"{table.game.name} {seat}: {spec.policy}{learns} as {spec.role}")
    for note in prepared.notes:
        show_line(console, f"! {note}", "yellow")
    show_line(console, f"{experiment.name}: fit to run", "green")


def _check_pipeline(pipeline: Pipeline, console: Console, as_json: bool) -> None:
    from arena.cli.loop import wait
    from arena.pipelines.checking import check_recipe

    notes = list[str]()
    wait(check_recipe(pipeline, lambda step: None, notes.append))
    if as_json:
        print(json.dumps({"experiment": pipeline.to_yaml(), "notes": notes}))
        return
    for stage in pipeline.stages:
        show_line(console, f"stage {stage.number}: {stage.name} ({stage.kind})")
    for note in notes:
        show_line(console, f"! {note}", "yellow")
    show_line(console, f"{pipeline.name}: fit to run", "green")


@check_app.command("game")
def check_game(
    name: Annotated[str, typer.Argument(help="Name of a game, as in an experiment's game.name.", show_default=False)],
    acts: Annotated[int, typer.Option(min=1, max=10**9, help="Number of random legal and illegal acts.")] = 2000,
    seeds: Annotated[int, typer.Option(min=1, max=10**6, help="Number of matches in each other check.")] = 20,
    option: Annotated[list[str] | None, typer.Option(metavar="A=B", help="An option of the game; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Check by random play that a game meets the contract of all games; exit with code 1 if it does not.

    For a simulator also check that inaction scores 0, that full knowledge scores 1, and that no secret leaks.

    Games of other libraries have names such as
    openspiel:oh_hell, pettingzoo:connect_four_v3, textarena:TicTacToe-v0, babyai:GoToLocal-v0,
    gymnasium:FrozenLake-v1, textworld:w2-o3-q4, gem:game:Minesweeper-v0-easy,
    overcooked:cramped_room, scienceworld:boil, miniwob:click-button, tau2:airline,
    pettingzoo:mpe2.simple_spread_v3, verifiers:wordle, openenv:http://127.0.0.1:8000,
    path/to/file.py:ClassName

    Example: arena check game kuhn_poker --acts 100000 --seeds 1000
    """
    from agents.reply import remove_invisible
    from arena.config.sources import parse_game_options
    from arena.evaluate.evaluation import make_game
    from arena.play import making
    from arena.play.settings import GameSpec
    from games.conformance import kit as games_kit
    from simulators import conformance as simulators_kit
    from simulators.base import Simulator

    options = parse_game_options(option or [])
    game = make_game(GameSpec(name=name, options=options))

    def make() -> Any:
        return making.make_game(name, options)

    is_simulator = isinstance(game, Simulator)
    kit = simulators_kit if is_simulator else games_kit
    count = len(games_kit.CHECKS) + is_simulator * len(simulators_kit.CHECKS)
    with progress(count, as_json, label="checks") as step:
        findings = kit.check(make, seeds=seeds, acts=acts, on_finding=step)
    failed = [finding.name for finding in findings if finding.ok is False]
    if as_json:
        print(json.dumps([vars(finding) for finding in findings]))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        marks = {True: Text("ok", "green"), False: Text("FAILED", "red"), None: Text("not checked", "yellow")}
        for finding in findings:
            detail = Text(remove_invisible(finding.detail))
            table.add_row(marks[finding.ok], finding.name, detail, f"{finding.seconds:.1f} s")
        console = PlainConsole()
        console.print(table)
        for finding in findings:
            if not finding.ok:
                show_line(console, f"{finding.name}: {kit.PROMISES[finding.name]}", "yellow")
        contract = "the contract of simulators" if is_simulator else "the contract of games"
        verdict = f"fails {', '.join(failed)}" if failed else f"meets {contract}"
        unchecked = [finding.name for finding in findings if finding.ok is None]
        verdict += f" (not checked: {', '.join(unchecked)})" if unchecked else ""
        style = "red" if failed else "yellow" if unchecked else "green"
        show_line(console, f"{name}: {verdict}", style)
    if failed:
        raise typer.Exit(1)
