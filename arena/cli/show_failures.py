"""Failures of a run: a table of its failed matches, or one of them with its traceback and how to play it again."""

import json
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.tables import print_table
from arena.errors import StoreError
from arena.plain import printable, printable_lines
from arena.store.failures import FailedMatch, read_failures
from arena.store.files import require_run


def show_failures(console: Console, run: Path, match: str, as_json: bool) -> None:
    """The failed matches of a run, or the one of this id; StoreError where there is none of it."""
    failed, more = read_failures(require_run(run))
    if match:
        found = _find(run, failed, match)
        print(json.dumps(found.model_dump(mode="json"))) if as_json else _show_one(console, found)
    elif as_json:
        print(json.dumps({"failures": [each.model_dump(mode="json") for each in failed], "more": more}))
    elif not failed and not more:
        console.print(Text(f"no match of {printable(str(run))} has failed"), soft_wrap=True)
    else:
        _show_all(console, run, failed, more)


def _find(run: Path, failed: list[FailedMatch], match: str) -> FailedMatch:
    for each in reversed(failed):
        if each.match == match:
            return each
    near = get_close_matches(match[:64], [each.match for each in failed], n=1)
    hint = f" — did you mean '{near[0]}'?" if near else ""
    raise StoreError(f"{run} keeps no failed match '{match[:64]}'{hint}")


def _show_all(console: Console, run: Path, failed: list[FailedMatch], more: dict[int, int]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("match", "it", "game", "kind", "why", "where"):
        table.add_column(name, overflow="fold", no_wrap=name in ("match", "it", "kind"))
    for each in failed:
        cells = (each.match, str(each.iteration), each.game, each.kind, printable(each.reason)[:200], each.where)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    print_table(console, table)
    for iteration, count in sorted(more.items()):
        console.print(Text(f"iteration {iteration}: {count} more failed and are not kept", style="dim"), soft_wrap=True)
    if failed:
        console.print(Text(f"\none in full: arena show {run} {printable(failed[-1].match)} --failures"), soft_wrap=True)


def _show_one(console: Console, failed: FailedMatch) -> None:
    seats = ", ".join(f"{seat} = {s.policy}@{s.version} as {s.role}" for seat, s in failed.seats.items())
    head = f"{failed.game} {failed.match} (iteration {failed.iteration}, seed {failed.seed}): {seats}"
    console.print(Text(printable(head), style="bold"), soft_wrap=True)
    at = f", at {failed.where}" if failed.where else ""
    console.print(Text(printable(f"{failed.kind}: {failed.reason}{at}")), soft_wrap=True)
    about = {"options": json.dumps(failed.options), "draws": str(failed.draws), "attempt": str(failed.attempt + 1)}
    about |= {"to move": failed.seat, "act": failed.act or "", "began": failed.when}
    for name, value in about.items():
        if value:
            console.print(Text(f"{name}: {printable(value)}", style="dim"), soft_wrap=True)
    for title, text in (("where it came from", failed.trace), ("the same match again, in Python", failed.again)):
        if text:
            console.print(Text(f"\n{title}:", style="bold"))
            for line in printable_lines(text, max_characters=100_000):
                console.print(Text(f"  {line}"), soft_wrap=True)
