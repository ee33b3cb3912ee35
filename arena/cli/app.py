"""The commands. Each reads its options, calls one function of the house, and prints what came of it.

What a command needs it imports itself: to be told of commands, nobody waits for torch.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agents.errors import ChatError, EngineError, RoleError, WeightsError
from agents.names import nearest
from arena.cli import catalogue, check, credit, evaluate, fork, init, matrix, play, serve, study, weights
from arena.cli.console import PlainConsole, note
from arena.cli.evaluate import Json
from arena.cli.offered import Commands
from arena.errors import ConfigError, DivergedError, GateError, Interrupted, OutOfMemory, PlayError, StoreError

if TYPE_CHECKING:
    from arena.cli.live import Screen, Style
    from arena.config.experiment import Experiment

BAD_INPUT = (ConfigError, StoreError, RoleError, WeightsError, ChatError, EngineError)
"""Errors whose text is one line for the user; the command ends with exit code 2."""

LONGEST = 1000
"""Characters of a complaint, whatever name or value it repeats."""

app = typer.Typer(
    cls=Commands,
    help="The lab where language models learn by talking and playing with each other.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Start with: arena run selfplay --game negotiation",
)
app.command("play")(play.play)
app.command("eval")(evaluate.eval_)
app.command("tournament")(evaluate.tournament_)
app.command("exploit")(evaluate.exploit)
app.command("matrix")(matrix.matrix_)
app.command("study")(study.study)
app.command("credit")(credit.credit)
app.command("fork")(fork.fork)
app.command("init")(init.init)
app.command("serve")(serve.serve)
app.command("export")(weights.export)
app.command("average")(weights.average)
run_app = typer.Typer(help="Run an experiment.", no_args_is_help=True)
app.add_typer(run_app, name="run")
app.add_typer(check.check_app, name="check")

Run = Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)]


def run_cli() -> int:
    """Run the command line and turn every expected failure into one line and an exit code."""
    try:
        with _terminable() as terminated:
            app(standalone_mode=True)
    except BAD_INPUT as error:
        return _complain(str(error), 2)
    except (PlayError, GateError, DivergedError, OutOfMemory) as error:
        return _complain(f"the run stopped: {error}", 1)
    except (Interrupted, KeyboardInterrupt) as stop:
        return _stopped(str(stop) or "interrupted", terminated)
    except SystemExit as end:
        if end.code != 128 + signal.SIGINT:
            raise
        return _stopped("interrupted", terminated)  # of a KeyboardInterrupt typer says nothing
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return _complain(f"{str(error.filename)[:80]}…: no file can have so long a name", 2)
    return 0


@contextmanager
def _terminable() -> Iterator[list[int]]:
    """SIGTERM does what Ctrl-C does; the list is no longer empty once it came."""
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)  # as whoever waits just now wants to hear of it
        else:
            raise KeyboardInterrupt  # it is ignored in the background of a shell

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(words: str, terminated: Sequence[int]) -> int:
    if terminated:
        return _complain(words.replace("interrupted", "ended by SIGTERM", 1), 128 + signal.SIGTERM)
    return _complain(words, 128 + signal.SIGINT)


def _complain(line: str, code: int) -> int:
    from arena.plain import printable

    shown = printable(line)
    note(shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…")
    return code


def _version(wanted: bool) -> None:
    from importlib.metadata import version

    if wanted:
        print(f"arena {version('arena-selfplay')}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The lab where language models learn by talking and playing with each other."""


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
    out: Annotated[Path | None, typer.Option(help="The run folder; default runs/NAME-TIME.")] = None,
    as_json: Json = False,
) -> None:
    """Let policies play a game against each other and learn from it; without options, list what there is to play.

    Example: arena run selfplay --game negotiation --set play.matches=32 --seed 1
    """
    if not (game or recipe or config):
        if any((arm, set_, policies, engine, roles, iterations, seed, out)):
            raise ConfigError("what is to be played? Add --game, --recipe or --config (arena run selfplay lists them)")
        _print_rows(catalogue.to_play(), as_json)
        return
    settings = [*([f"engine.kind={engine}"] if engine else []), *(set_ or [])]
    experiment = _experiment(game, recipe, config, arm, settings, policies, roles, iterations, seed)
    from arena.cli.closing import close
    from arena.launch import start

    console, screen = _screen(experiment.iterations, as_json)
    with screen.shown():
        folder = start(experiment, out, screen)
    close(console, folder, screen)


@app.command()
def resume(
    run: Run,
    iterations: Annotated[int | None, typer.Option(help="How many iterations in all, such as 40 after 20.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="A setting that may change when a run goes on; repeatable."),
    ] = None,
    trust: evaluate.Trust = False,
    as_json: Json = False,
) -> None:
    """Continue a run from its newest valid checkpoint, as if it had never stopped.

    What may change: iterations, checkpoint, evaluate, endpoint, threads, limits of time and memory, learn.lr and
    learn.nonfinite (docs/run-folder.md). The run keeps what was changed when, in environment.json.

    Example: arena resume runs/latest --iterations 40 --set learn.lr=1e-5
    """
    from arena.cli.closing import close
    from arena.config.kept import experiment_of
    from arena.config.layers import set_layer
    from arena.launch import go_on

    assignments = [*(set_ or []), *([f"iterations={iterations}"] if iterations is not None else [])]
    layers = [set_layer(assignment) for assignment in assignments]
    experiment = experiment_of(run, layers, trust)
    console, screen = _screen(experiment.iterations, as_json)
    with screen.shown():
        go_on(run, screen, layers, trust)
    close(console, run, screen)


def _experiment(
    game: str,
    recipe: str,
    config: Path | None,
    arm: str,
    assignments: Iterable[str],
    policies: str,
    roles: Path | None,
    iterations: int | None,
    seed: int | None,
) -> Experiment:
    """The experiment that the options describe, checked."""
    import games
    from arena.config.layers import compose, file_layer, recipe_layer, set_layer, with_policies
    from arena.config.recipe import recipe_of

    if game and (complaint := games.complaint(game)):
        raise ConfigError(f"{complaint} (arena list games)")
    own = [file_layer(config)] if config else []
    whole = not recipe and not game and any(key in layer.data for layer in own for key in ("game", "tables"))
    layers = own if whole else [recipe_layer(recipe) if recipe else recipe_of(game), *own]
    if arm:
        from arena.config.arms import arm_layers

        below = compose(layers)
        layers += arm_layers(below, arm, below.seed if seed is None else seed)
    flags = {"roles": json.dumps(str(roles)) if roles else None, "iterations": iterations, "seed": seed}
    flags["game.name"] = game if recipe and game else None
    layers += [set_layer(f"{name}={value}") for name, value in flags.items() if value is not None]
    layers += [set_layer(assignment) for assignment in assignments]
    experiment = compose(layers)
    if policies not in ("", "shared", "separate"):
        raise ConfigError(f"--policies is shared or separate, not '{policies}'")
    if policies == "shared":
        return with_policies(experiment, "shared")
    return with_policies(experiment, "separate") if policies else experiment


def _screen(iterations: int, as_json: bool) -> tuple[Console, Screen]:
    from arena.cli.live import Screen

    console = PlainConsole()
    style: Style = "json" if as_json else "table" if console.is_terminal else "lines"
    return console, Screen(console, style, iterations)


@app.command()
def show(
    run: Annotated[
        Path, typer.Argument(help="A run folder, such as runs/latest; or the word game, or panel.", show_default=False)
    ],
    match: Annotated[
        str, typer.Argument(help="A match's id, such as 0003-0007; after game or panel, its name.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Show a run, or one of its matches as a dialogue with what every turn earned and was credited; or a game.

    Of a game: rules, seats, facts, acts, options, theory, and who plays it; of a panel: what it plays, and who sits on
    it. Example: arena show game haggle
    """
    from arena.cli import panel
    from arena.cli.show import show_match, show_run
    from arena.cli.show_game import describe, show_game
    from arena.store.contents import check_newest
    from arena.store.reader import RunReader

    console = PlainConsole()
    if run == Path("game") and match:
        print(json.dumps(describe(match))) if as_json else show_game(console, match)
        return
    if run == Path("panel") and match:
        print(json.dumps(panel.describe(match))) if as_json else panel.show(console, match)
        return
    reader = RunReader(run)
    check_newest(run, note)
    if as_json:
        print(json.dumps(reader.match(match) if match else reader.metrics()))
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
    """List what can be named in an experiment."""
    if kind not in catalogue.KINDS:
        known = ", ".join(catalogue.KINDS)
        raise ConfigError(f"unknown list '{kind}'{nearest(kind, catalogue.KINDS)} (one of: {known})")
    _print_rows(catalogue.entries(kind, [roles] if roles else []), as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """List the models that come with Arena: what is there, and where from."""
    from agents.weights import available

    rows = [
        {
            "name": m.name,
            "parameters": f"{m.parameters / 1e6:.1f}M",
            "state": m.state,
            "from": m.source,
            "path": str(m.path),
        }
        for m in available()
    ]
    _print_rows(rows, as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look whether this machine is fit to run Arena; exit code 1 if something must be fixed."""
    from arena.doctor import as_rows, examine

    findings = examine()
    if as_json:
        print(json.dumps(as_rows(findings)))
    else:
        console = PlainConsole()
        for finding in findings:
            mark = Text("ok  ", style="green") if finding.ok else Text("fix ", style="red")
            console.print(mark.append(f"{finding.what}: {finding.found}", style="default"), soft_wrap=True)
            if not finding.ok:
                console.print(Text(f"    {finding.fix}"), soft_wrap=True)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _print_rows(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, overflow="fold", no_wrap=n == 0)
    for row in rows:
        table.add_row(*(Text(value) for value in row.values()))
    PlainConsole().print(table)
