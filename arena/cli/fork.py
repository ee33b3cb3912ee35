"""`arena fork`: replay a logged match up to a turn, then continue with other players or another act."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from arena.cli.console import PlainConsole, note, write_results
from arena.cli.contenders import Endpoint, Json, Out, Trust, make_announcer, make_endpoints
from arena.cli.progress import progress
from arena.cli.tables import Cell, format_difference, format_interval, show_line, show_table
from arena.errors import ConfigError
from arena.store.outputs import require_output, results_kind

if TYPE_CHECKING:
    from rich.console import Console

    from arena.evaluate.fork import ForkResults


MAX_ACT = 80
"""Maximum characters of an act in the heading."""


def fork(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)],
    match: Annotated[str, typer.Argument(help="A match's id, such as 0003-0007.", show_default=False)],
    turn: Annotated[
        int, typer.Option(min=1, help="Turn to fork from, by its number in arena show.", show_default=False)
    ],
    seat: Annotated[
        list[str] | None,
        typer.Option(metavar="SEAT=WHO", help="Player of a seat from that turn on, as in arena play; repeatable."),
    ] = None,
    act: Annotated[
        str, typer.Option(help="Act that replaces the logged one at that turn, such as 'REFUSE' or 'PASS | no'.")
    ] = "",
    n: Annotated[
        int, typer.Option("-n", min=1, max=10**5, help="Number of forks, and of replays without a change.")
    ] = 20,
    role: Annotated[
        str, typer.Option(help="Role of the models named by --seat; default the role in their run or in this one.")
    ] = "",
    endpoint: Endpoint = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
    lines: Annotated[bool, typer.Option("--lines", hidden=True)] = False,
) -> None:
    """Continue a logged match from a turn with other players, or with another act at that turn.

    The deal and all earlier turns are those of the log. The same number of replays keeps the logged players. Fork i and
    replay i use the same random numbers, so differences are paired.

    Example: arena fork runs/latest 0003-0007 --turn 2 --seat second=nash -n 100
    """
    from arena.cli.loop import wait
    from arena.evaluate.fork import fork as play
    from arena.evaluate.specs import ContenderLoader
    from arena.play.contenders import HumanContender

    require_output("--out", out, results_kind("fork"))
    others = _parse_seats(seat or [])
    loader = ContenderLoader(role, make_announcer(), make_endpoints(endpoint), note, trust)
    with progress(2 * n, as_json or lines or "human" in others.values(), loader.endpoints.status) as step:
        person = HumanContender(PlainConsole(stderr=True))
        if lines:  # the person plays at the web page
            from arena.cli.seat import PageContender, write_line

            person = PageContender(PlainConsole(stderr=True))
        forked = wait(play(run, match, turn - 1, others, act, n, loader, person, step))
    write_results("fork", _to_json(forked), out, as_json)
    if lines:
        write_line({"end": _to_json(forked)})
    elif not as_json:
        show(PlainConsole(), forked)


def _parse_seats(assignments: Sequence[str]) -> dict[str, str]:
    """Return the player of each seat from `SEAT=WHO` options. Raises ConfigError for malformed or double seats."""
    players: dict[str, str] = {}
    for assignment in assignments:
        seat, equals, player = (part.strip() for part in assignment.partition("="))
        if not (seat and equals and player):
            raise ConfigError(f"--seat {assignment}: write SEAT=WHO, such as --seat buyer=random")
        if players.setdefault(seat, player) != player:
            raise ConfigError(f"--seat: {seat} is given twice: {players[seat]} and {player}")
    return players


def _to_json(forked: ForkResults) -> dict[str, Any]:
    """Return the forks as JSON data. Intervals are [estimate, low, high], with null for NaN."""
    from arena.evaluate.evaluation import interval_to_json

    fork_point = forked.fork_point
    arms = {"unchanged": forked.unchanged, "forked": forked.forked}
    figures = {
        name: {"logged": forked.logged.get(name)}
        | {arm: interval_to_json(forked.mean(values, name)) for arm, values in arms.items()}
        | {"difference": interval_to_json(forked.difference(name))}
        for name in forked.figures()
    }
    return {
        "match": fork_point.match.id, "turn": fork_point.turn, "mover": fork_point.mover, "act": fork_point.act or None,
        "sat": dict(forked.original_players), "others": dict(forked.new_players), "figures": figures, "values": arms,
        "failed": forked.failed,
    }  # fmt: skip


def show(console: Console, forked: ForkResults) -> None:
    """Print the change and each figure: its logged value, means without and with the change, and their difference."""
    from arena.plain import printable

    fork_point = forked.fork_point
    logged_turn = fork_point.match.turns[fork_point.turn]
    logged_act = " ".join(logged_turn.action.split())[:MAX_ACT]
    act = f"{fork_point.act[:MAX_ACT]} instead of {logged_act}" if fork_point.act else f"was {logged_act}"
    names = {seat: name or "human" for seat, name in forked.original_players.items()} | dict(forked.new_players)
    players = ", ".join(f"{seat} = {name}" for seat, name in names.items())
    forks = max(map(len, forked.forked.values()), default=0)
    match, turn = fork_point.match, fork_point.turn
    head = f"{match.id} of {match.game} from turn {turn + 1} on ({logged_turn.seat}: {act})"
    show_line(console, head, "bold")
    show_line(console, f"{forks} forks: {players} (95 % intervals)")
    rows: list[list[Cell]] = []
    for name in forked.figures():
        logged, difference = forked.logged.get(name), forked.difference(name)
        formatted = (
            Text("–")
            if math.isnan(difference.estimate)
            else format_difference(name, difference, format_interval(difference))
        )
        means = [format_interval(forked.mean(arm, name)) for arm in (forked.unchanged, forked.forked)]
        rows.append([printable(name), "–" if logged is None else f"{logged:.2f}", *means, formatted])
    show_table(console, ("", "logged", "as they were", "forked", "difference"), rows)
    for reason, count in forked.failed.items():
        show_line(console, f"! {count} attempts failed: {reason}", "yellow")
