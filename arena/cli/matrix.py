"""`arena matrix`: success rates and reliability of agents with different simulated persons or partners."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.console import PlainConsole, note, write_results
from arena.cli.contenders import (
    Endpoint,
    Json,
    Option,
    Out,
    Seed,
    Split,
    Trust,
    make_announcer,
    make_endpoints,
    resolve_game,
    split_names,
)
from arena.cli.progress import progress
from arena.errors import ConfigError, Interrupted
from arena.store.outputs import PICTURE, require_output, results_kind

if TYPE_CHECKING:
    from arena.evaluate.matrix import Cell
    from arena.play.settings import GameSpec

AGENTS = "A player of the simulator (oracle, asker), a run (runs/latest, runs/latest@12), a model or endpoint:MODEL."


def matrix_(
    agents: Annotated[list[str], typer.Argument(help=AGENTS, show_default=False)],
    game: Annotated[str, typer.Option(help="A simulator: clinic, desk, sql, workspace.", show_default=False)],
    persons: Annotated[
        str,
        typer.Option(
            help="Personas, PERSONA+CONTENDER if a contender words the script's decisions, or PERSONA=CONTENDER if it "
            "plays the person: terse,terse+runs/latest,terse=runs/latest; default all personas, scripted. "
            "Without personas there is one column, default; default=CONTENDER is a partner at other seats.",
            show_default=False,
        ),
    ] = "",
    tasks: Annotated[
        int, typer.Option(min=2, max=10**5, help="Number of tasks (hidden entities), equal for all agents and persons.")
    ] = 50,
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Matches per task, with different randomness.")] = 4,
    k: Annotated[int | None, typer.Option("--k", min=1, help="Largest k of pass^k; default --trials.")] = None,
    role: Annotated[str, typer.Option(help="Role of all agents that are models, instead of their own.")] = "",
    option: Option = None,
    split: Split = "",
    endpoint: Endpoint = None,
    seed: Seed = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw pass^1 and pass^k into this PNG file.")] = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Play every agent with every simulated person on the same tasks; print success rates and pass^k with intervals.

    pass^k is the chance that k trials of a task all succeed (tau-bench); pass^1 is the success rate. A task is the
    simulator's hidden entity (a patient's disease, a customer's goals) and is the same for all personas. A persona
    changes what the person volunteers, forgets or mistakes. In a game without a person, an agent plays alone, or takes
    all seats unless it gets a partner. Intervals are over tasks. A match that fails by a fault of
    the simulator or of a model does not count as a success of 0: the fault rate is reported separately.

    Example: arena matrix asker random_asker --game clinic --persons cooperative,terse,terse+smollm2-135m-instruct
    """
    from arena.cli.loop import wait
    from arena.evaluate.matrix import Cell, Person, find_voice, play_matrix, read_persons
    from arena.evaluate.specs import ContenderLoader

    require_output("--plot", plot, PICTURE)
    require_output("--out", out, results_kind("matrix"))
    max_k = trials if k is None else k
    if max_k > trials:
        raise ConfigError(f"--k {max_k} needs at least as many --trials, not {trials}")
    texts = split_names(persons)
    loader = ContenderLoader("", make_announcer(), make_endpoints(endpoint), note, trust)
    voices = list(dict.fromkeys(voice for text in texts if (voice := find_voice(text))))
    loaded = wait(loader.load(*dict.fromkeys(agents), *voices, games=[game]))
    rows, speakers = loaded[: len(loaded) - len(voices)], loaded[len(loaded) - len(voices) :]
    spec = resolve_game(game, option, rows, split)
    if reserved := {"persona", "person"} & spec.options.keys():
        raise ConfigError(f"--option {min(reserved)}: --persons sets the persons of a matrix")
    speaker_of = dict(zip(voices, speakers, strict=True))
    people = [Person(persona, speaker_of.get(voice), speech) for persona, voice, speech in read_persons(texts, spec)]
    cells, total, is_interrupted = list[Cell](), len(rows) * len(people), False

    async def play(step: Callable[[], None]) -> None:
        async for cell in play_matrix(rows, people, spec, tasks, trials, max_k, seed, step, role):
            cells.append(cell)

    with progress(total * tasks * trials, as_json, loader.endpoints.status) as step:
        try:
            wait(play(step))
        except KeyboardInterrupt:
            is_interrupted = True
    if cells:
        _report(cells, spec, seed, plot, out, as_json)
    if is_interrupted:
        done = f"{len(cells)} of {total} cells are done{f' and in {out}' if out and cells else ''}"
        raise Interrupted(f"interrupted: {done}; the cell in progress is lost")


def _report(
    cells: Sequence[Cell], spec: GameSpec, seed: int, plot: Path | None, out: Path | None, as_json: bool
) -> None:
    """Draw the picture, write the results as JSON, and print the tables, each if its option is set."""
    title = _format_title(cells[0], spec)
    if plot:
        from arena.evaluate.crosstable_plot import draw_matrix
        from arena.store.plots import save_plot

        save_plot(lambda: draw_matrix(cells, title), plot)
    write_results("matrix", _to_json(cells, spec, seed), out, as_json)
    if not as_json:
        _print_tables(PlainConsole(), title, cells)


def _format_title(cell: Cell, spec: GameSpec) -> str:
    from arena.cli.show_evaluate import format_game

    return f"{format_game(spec)}: {cell.tasks} tasks × {cell.trials} trials (95 % intervals over tasks)"


def _to_json(cells: Sequence[Cell], spec: GameSpec, seed: int) -> dict[str, Any]:
    """Return command, machine, settings and the cells (one per agent and person) as JSON data."""
    from arena.doctor import describe_environment

    first = cells[0]
    machine = {name: value for name, value in describe_environment().items() if name != "command"}
    invocation = {"command": shlex.join(["arena", *sys.argv[1:]]), "machine": machine, "seed": seed}
    settings = {"game": spec.name, "options": spec.options, "tasks": first.tasks, "trials": first.trials, "k": first.k}
    return invocation | settings | {"cells": [cell.to_json() for cell in cells]}


def _print_tables(console: Console, title: str, cells: Sequence[Cell]) -> None:
    """Print tables of pass^1, pass^k and mean turns by agent and person, then each cell's failures by reason.

    Equal tables of pass^1 and pass^k are printed once. A failure is printed with its number of matches and the rate
    of all failures of the cell.
    """
    from arena.cli.show_evaluate import shorten_names
    from arena.cli.tables import format_interval, format_number, print_table
    from arena.plain import printable

    agents, persons = dict.fromkeys(cell.agent for cell in cells), dict.fromkeys(cell.person for cell in cells)
    short = shorten_names(agents)
    by_pair = {(cell.agent, cell.person): cell for cell in cells}
    console.print(Text(printable(title), style="bold"), soft_wrap=True)
    max_k = cells[0].k
    first, last = ({pair: format_interval(c.reliability(k)) for pair, c in by_pair.items()} for k in (1, max_k))
    both = f"pass^1 to pass^{max_k}" if max_k > 1 else "pass^1"
    figures = {both: first} if first == last else {"pass^1": first, f"pass^{max_k}": last}
    figures["turns"] = {pair: format_number(c.mean("turns").estimate, "{:.1f}") for pair, c in by_pair.items()}
    for name, values in figures.items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for n, column in enumerate((name, *persons)):
            table.add_column(
                Text(re.sub("([+=])", r"\n\1", printable(column), count=1)), overflow="fold", no_wrap=n > 0
            )
        for agent in agents:
            row = (values.get((agent, person), "") for person in persons)
            table.add_row(*map(Text, [printable(short[agent]), *row]))
        print_table(console, table)
        console.print()
    for cell in cells:
        for reason, count in cell.faults.items():
            failures = f"{count} matches failed, {format_interval(cell.fault_rate)}: {reason}"
            line = printable(f"! {cell.agent} with {cell.person}: {failures}")
            console.print(Text(line, style="yellow"), soft_wrap=True)
