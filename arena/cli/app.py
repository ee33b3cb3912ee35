"""The command line application. Commands import what they need when they run, so that help does not load torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from arena.cli import (
    catalogue,
    check,
    credit,
    doctor,
    evaluate,
    exploit,
    export,
    export_env,
    fork,
    init,
    matrix,
    play,
    run,
    serve,
    study,
    sweep,
    tournament,
)
from arena.cli.command_plugins import CommandGroup
from arena.cli.console import PlainConsole, note
from arena.cli.contenders import Json
from arena.cli.tables import print_rows
from arena.errors import ConfigError
from games.names import nearest

app = typer.Typer(
    cls=CommandGroup,
    help="The lab where language models learn by talking and playing with each other.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Start with: arena run selfplay --game negotiation",
)
app.command("play")(play.play)
app.command("eval")(evaluate.eval_)
app.command("tournament")(tournament.tournament_)
app.command("exploit")(exploit.exploit)
app.command("matrix")(matrix.matrix_)
app.command("study")(study.study)
app.command("sweep")(sweep.sweep)
app.command("credit")(credit.credit)
app.command("fork")(fork.fork)
app.command("init")(init.init)
app.command("serve")(serve.serve)
app.command("export")(export.export)
app.command("export-env")(export_env.export_env)
app.command("resume")(run.resume)
app.command("doctor")(doctor.doctor)
app.add_typer(run.run_app, name="run")
app.add_typer(check.check_app, name="check")


def _print_version(is_given: bool) -> None:
    from importlib.metadata import version

    if is_given:
        print(f"arena {version('arena-selfplay')}")
        raise typer.Exit


@app.callback()
def _handle_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The lab where language models learn by talking and playing with each other."""


@app.command()
def show(
    run: Annotated[
        Path, typer.Argument(help="A run folder, such as runs/latest, or the word game or panel.", show_default=False)
    ],
    match: Annotated[
        str, typer.Argument(help="A match id, such as 0003-0007, or the name of the game or panel.", show_default=False)
    ] = "",
    failures: Annotated[
        bool, typer.Option("--failures", help="Show the failed matches, or one of them in full.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run, a pipeline's stages, a match with the reward and advantage of every turn, a game, or a panel.

    Example: arena show game haggle
    """
    from arena.cli import panel
    from arena.cli.show import match_to_json, show_match, show_run
    from arena.cli.show_game import describe, show_game
    from arena.store.contents import check_newest
    from arena.store.reader import RunReader
    from arena.store.stages import is_pipeline

    console = PlainConsole()
    if failures:
        from arena.cli.show_failures import show_failures

        return show_failures(console, run, match, as_json)
    if run == Path("game") and match:
        print(json.dumps(describe(match))) if as_json else show_game(console, match)
        return
    if run == Path("panel") and match:
        print(json.dumps(panel.describe(match))) if as_json else panel.show(console, match)
        return
    if not run.exists() and str(run) in ("game", "panel"):
        raise ConfigError(f"which {run}? Name one: arena show {run} NAME (arena list {run}s)")
    if match and not run.exists() and (hint := nearest(str(run), ["game", "panel"])):
        raise ConfigError(f"there is no folder {run}{hint}")
    if is_pipeline(run) and not match:
        from arena.cli.show_pipeline import list_stages, show_pipeline

        return print(json.dumps(list_stages(run), default=str)) if as_json else show_pipeline(console, run)
    reader = RunReader(run)
    check_newest(run, note)
    if as_json:
        print(json.dumps(match_to_json(run, match) if match else reader.metrics(), default=str))
    elif match:
        show_match(console, run, match)
    else:
        show_run(console, run)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(catalogue.KINDS)}.", show_default=False)],
    roles: Annotated[Path | None, typer.Option(help="A folder of your own role files.")] = None,
    as_json: Json = False,
) -> None:
    """List the games, roles, policies and other names that an experiment can use."""
    if kind not in catalogue.KINDS:
        known = ", ".join(catalogue.KINDS)
        raise ConfigError(f"unknown list '{kind}'{nearest(kind, catalogue.KINDS)} (one of: {known})")
    rows = catalogue.list_entries(kind, [roles] if roles else [])
    if kind == "roles" and not as_json:  # paths are too wide for a table
        rows = [{key: text for key, text in row.items() if key != "file"} for row in rows]
    print_rows(PlainConsole(), rows, as_json)
