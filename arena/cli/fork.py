"""`arena fork`: a logged match up to a turn, then somebody else or another act."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from arena.cli.console import PlainConsole, close, note
from arena.cli.evaluate import Endpoint, Json, Out, Trust, doing, servers
from arena.cli.progress import progress
from arena.errors import ConfigError
from arena.store.outputs import require_output, results

if TYPE_CHECKING:
    from rich.console import Console

    from arena.evaluate.fork import ForkResults
    from arena.statistics import Interval


LONGEST = 80
"""Characters of an act that are shown."""


def fork(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)],
    match: Annotated[str, typer.Argument(help="A match's id, such as 0003-0007.", show_default=False)],
    turn: Annotated[
        int, typer.Option(min=1, help="Where to leave the match: the turn's number in arena show.", show_default=False)
    ],
    seat: Annotated[
        list[str] | None,
        typer.Option(metavar="SEAT=WHO", help="Who sits there from then on, as in arena play; repeatable."),
    ] = None,
    act: Annotated[str, typer.Option(help="What is done at that turn instead, such as 'REFUSE' or 'PASS | no'.")] = "",
    n: Annotated[int, typer.Option("-n", min=1, max=10**5, help="How many forks, and as many replays without.")] = 20,
    role: Annotated[
        str, typer.Option(help="How models named by --seat are prompted; default as their run or this one does.")
    ] = "",
    endpoint: Endpoint = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
    lines: Annotated[bool, typer.Option("--lines", hidden=True)] = False,
) -> None:
    """Play a logged match on from a turn with somebody else, or after something else was done.

    The deal and all that was said before stay as they are in the log; from there on the match is played again, and as
    often by those who sat there. The same chance is theirs in fork i of both, so differences are taken fork by fork.

    Example: arena fork runs/latest 0003-0007 --turn 2 --seat second=nash -n 100
    """
    from arena.cli.loop import wait
    from arena.evaluate.fork import fork as play
    from arena.evaluate.specs import Contenders
    from arena.play.contenders import HumanContender

    require_output("--out", out, results("fork"))
    others = _others(seat or [])
    loader = Contenders(role, doing(), servers(endpoint), note, trust)
    with progress(2 * n, as_json or lines or "human" in others.values(), loader.endpoints.status) as step:
        person = HumanContender(PlainConsole(stderr=True))
        if lines:  # a page's seat
            from arena.cli.seat import PageContender, write_line

            person = PageContender(PlainConsole(stderr=True))
        forked = wait(play(run, match, turn - 1, others, act, n, loader, person, step))
    close("fork", _data(forked), out, as_json)
    if lines:
        write_line({"end": _data(forked)})
    elif not as_json:
        show(PlainConsole(), forked)


def _others(assignments: Sequence[str]) -> dict[str, str]:
    """From `SEAT=WHO` to who sits there."""
    others: dict[str, str] = {}
    for assignment in assignments:
        seat, equals, who = (part.strip() for part in assignment.partition("="))
        if not (seat and equals and who):
            raise ConfigError(f"--seat {assignment}: write SEAT=WHO, such as --seat buyer=random")
        if others.setdefault(seat, who) != who:
            raise ConfigError(f"--seat: two are to sit at {seat}: {others[seat]} and {who}")
    return others


def _data(forked: ForkResults) -> dict[str, Any]:
    """Return the forks as JSON data: every interval as [estimate, low, high], null where the data cannot say."""
    parting = forked.parting
    arms = {"unchanged": forked.unchanged, "forked": forked.forked}
    figures = {
        name: {"logged": forked.logged.get(name)}
        | {arm: _ends(forked.mean(values, name)) for arm, values in arms.items()}
        | {"difference": _ends(forked.difference(name))}
        for name in forked.figures()
    }
    return {
        "match": parting.match.id, "turn": parting.turn, "mover": parting.mover, "act": parting.act or None,
        "sat": dict(forked.sat), "others": dict(forked.others), "figures": figures, "values": arms,
        "failed": forked.failed,
    }  # fmt: skip


def _ends(interval: Interval) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in interval]


def show(console: Console, forked: ForkResults) -> None:
    """A line about the fork, and a row for each figure."""
    from arena.cli.show_evaluate import interval
    from arena.cli.tables import print_table, verdict
    from arena.plain import printable

    parting = forked.parting
    was = parting.match.turns[parting.turn]
    acted = " ".join(was.action.split())[:LONGEST]
    does = f"{parting.act[:LONGEST]} instead of {acted}" if parting.act else f"was {acted}"
    sits = ", ".join(f"{seat} = {forked.others.get(seat, who or 'human')}" for seat, who in forked.sat.items())
    forks = max(map(len, forked.forked.values()), default=0)
    head = f"{parting.match.id} of {parting.match.game} from turn {parting.turn + 1} on ({was.seat}: {does})"
    console.print(Text(printable(head), style="bold"), soft_wrap=True)
    console.print(Text(printable(f"{forks} forks: {sits} (95 % intervals)")), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "logged", "as they were", "forked", "difference"):
        table.add_column(name, justify="right" if name == "logged" else "left", no_wrap=True)
    for name in forked.figures():
        logged, difference = forked.logged.get(name), forked.difference(name)
        told = Text("–") if math.isnan(difference.estimate) else verdict(name, difference, interval(difference))
        means = [interval(forked.mean(arm, name)) for arm in (forked.unchanged, forked.forked)]
        table.add_row(Text(printable(name)), "–" if logged is None else f"{logged:.2f}", *means, told)
    print_table(console, table)
    for reason, count in forked.failed.items():
        console.print(Text(printable(f"! {count} attempts failed: {reason}"), style="yellow"), soft_wrap=True)
