"""`arena matrix`: how well agents do with different persons, and how reliably."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.console import PlainConsole, close, note
from arena.cli.evaluate import (
    Endpoint,
    Json,
    Option,
    Out,
    Seed,
    Split,
    Trust,
    doing,
    game_spec,
    listed,
    servers,
)
from arena.cli.progress import progress
from arena.errors import ConfigError, Interrupted
from arena.store.outputs import PICTURE, require_output, results

if TYPE_CHECKING:
    from arena.evaluate.matrix import Cell
    from arena.play.settings import GameSpec

AGENTS = "A player of the simulator (oracle, asker), a run (runs/latest, runs/latest@12), a model or endpoint:MODEL."


def matrix_(
    agents: Annotated[list[str], typer.Argument(help=AGENTS, show_default=False)],
    game: Annotated[str, typer.Option(help="A simulator with a person in it: clinic, desk.", show_default=False)],
    persons: Annotated[
        str,
        typer.Option(
            help="Personas, and PERSONA+CONTENDER where a contender words what the script decides: "
            "terse,terse+runs/latest; default all personas, scripted.",
            show_default=False,
        ),
    ] = "",
    tasks: Annotated[
        int, typer.Option(min=2, max=10**5, help="Hidden entities; every agent meets all, with every person.")
    ] = 50,
    trials: Annotated[int, typer.Option(min=1, max=1000, help="How often each task is played, with other chance.")] = 4,
    k: Annotated[int | None, typer.Option("--k", min=1, help="Up to which pass^k; default all trials.")] = None,
    role: Annotated[str, typer.Option(help="For all models that are agents, instead of their own.")] = "",
    option: Option = None,
    split: Split = "",
    endpoint: Endpoint = None,
    seed: Seed = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw pass^1 and pass^k into this PNG file.")] = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Every agent with every simulated person, on the same tasks: success rates and pass^k, with intervals.

    pass^k is the chance that k trials of a task all succeed (tau-bench): what is right now and then falls with k.
    pass^1 is the success rate. A task is what the simulator hides (who is ill of what, who wants what) and is the
    same for all personas; a persona changes what is volunteered, forgotten or mistaken. Intervals are over tasks. A
    match that fails by a fault of the simulator or of a model is never a score of 0: its rate is a column of its own.

    Example: arena matrix asker random_asker --game clinic --persons cooperative,terse,terse+smollm2-135m-instruct
    """
    from arena.cli.loop import wait
    from arena.evaluate.evaluation import make_game
    from arena.evaluate.matrix import Cell, Person, in_role, matrix, read_persons
    from arena.evaluate.specs import Contenders
    from arena.play.settings import GameSpec

    require_output("--plot", plot, PICTURE)
    require_output("--out", out, results("matrix"))
    console, deepest = PlainConsole(), trials if k is None else k
    if deepest > trials:
        raise ConfigError(f"--k {deepest} needs at least as many --trials, not {trials}")
    columns = read_persons(listed(persons), GameSpec(name=game))
    loader = Contenders("", doing(), servers(endpoint), note, trust)
    voices = list(dict.fromkeys(voice for _, voice in columns if voice))
    loaded = wait(loader.load(*dict.fromkeys(agents), *voices, games=[game]))
    rows, speakers = loaded[: len(loaded) - len(voices)], loaded[len(loaded) - len(voices) :]
    spec = game_spec(game, option, rows, split)
    if taken := {"persona", "person"} & spec.options.keys():
        raise ConfigError(f"--option {min(taken)}: the persons of a matrix are those of --persons")
    rows = [in_role(who, game, make_game(spec).possible_agents[0], role) for who in rows]
    worded = {"person": "render"} if speakers else {}
    *_, speaking = make_game(GameSpec(name=game, options=spec.options | worded)).possible_agents
    words = {w.name: in_role(w, game, speaking) for w in speakers}
    people = [Person(persona, words[voice] if voice else None) for persona, voice in columns]
    cells, total, stopped = list[Cell](), len(rows) * len(people), False

    async def play(step: Callable[[], None]) -> None:
        async for cell in matrix(rows, people, spec, tasks, trials, deepest, seed, step):
            cells.append(cell)

    with progress(total * tasks * trials, as_json, loader.endpoints.status) as step:
        try:
            wait(play(step))
        except KeyboardInterrupt:
            stopped = True
    if cells:
        title = _title(cells[0], spec)
        if plot:
            from arena.evaluate.matrix_plot import plot as draw

            draw(cells, title, plot)
        close("matrix", _data(cells, spec, seed), out, as_json)
        if not as_json:
            _show(console, title, cells)
    if stopped:
        done = f"{len(cells)} of {total} cells are done{f' and in {out}' if out and cells else ''}"
        raise Interrupted(f"interrupted: {done}; the one that was being played is lost")


def _title(cell: Cell, spec: GameSpec) -> str:
    """Return the title of the matrix: what all cells have in common."""
    from arena.cli.show_evaluate import titled

    return f"{titled(spec)}: {cell.tasks} tasks × {cell.trials} trials (95 % intervals over tasks)"


def _data(cells: Sequence[Cell], spec: GameSpec, seed: int) -> dict[str, Any]:
    """Return the matrix as JSON data: the command, the machine, what was dealt, and the cells."""
    from arena.doctor import environment

    first = cells[0]
    machine = {name: value for name, value in environment().items() if name != "command"}
    invocation = {"command": shlex.join(["arena", *sys.argv[1:]]), "machine": machine, "seed": seed}
    dealt = {"game": spec.name, "options": spec.options, "tasks": first.tasks, "trials": first.trials, "k": first.k}
    return invocation | dealt | {"cells": [cell.to_json() for cell in cells]}


def _show(console: Console, title: str, cells: Sequence[Cell]) -> None:
    """A table of pass^1, one of the deepest pass^k where that says more, and one of turns; then what failed."""
    from arena.cli.show_evaluate import shortened
    from arena.cli.tables import cell as number
    from arena.cli.tables import interval, print_table
    from arena.plain import printable

    agents, persons = dict.fromkeys(cell.agent for cell in cells), dict.fromkeys(cell.person for cell in cells)
    short = shortened(agents)
    by_pair = {(cell.agent, cell.person): cell for cell in cells}
    console.print(Text(printable(title), style="bold"), soft_wrap=True)
    deepest = cells[0].k
    first, last = ({at: interval(c.reliability(k)) for at, c in by_pair.items()} for k in (1, deepest))
    alike = f"pass^1 to pass^{deepest}" if deepest > 1 else "pass^1"
    figures = {alike: first} if first == last else {"pass^1": first, f"pass^{deepest}": last}
    figures["turns"] = {at: number(c.mean("turns").estimate, "{:.1f}") for at, c in by_pair.items()}
    for name, values in figures.items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for n, column in enumerate((name, *persons)):
            table.add_column(Text(printable(column).replace("+", "\n+")), overflow="fold", no_wrap=n > 0)
        for agent in agents:
            cells_of = (values.get((agent, person), "") for person in persons)
            table.add_row(*map(Text, [printable(short[agent]), *cells_of]))
        print_table(console, table)
        console.print()
    for cell in cells:
        for reason, count in cell.faults.items():
            lost = f"! {cell.agent} with {cell.person}: {count} matches failed, {interval(cell.fault_rate)}: {reason}"
            console.print(Text(printable(lost), style="yellow"), soft_wrap=True)
