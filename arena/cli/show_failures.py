"""Output of `arena show RUN --failures`: the failed matches of a run, or one of them in full."""

import json
from pathlib import Path

from rich.console import Console

from arena.cli.tables import show_line, show_table
from arena.errors import StoreError
from arena.plain import printable, printable_lines
from arena.store.failures import FailedMatch, read_failures
from arena.store.files import require_run
from games.names import nearest


def show_failures(console: Console, run: Path, match: str, as_json: bool) -> None:
    """Print all saved failed matches of a run, or the one with id `match`. Raises StoreError for an unknown id."""
    failed, omitted = read_failures(require_run(run))
    if match:
        found = _find(run, failed, match)
        print(json.dumps(found.model_dump(mode="json"))) if as_json else _show_one(console, found)
    elif as_json:
        print(json.dumps({"failures": [each.model_dump(mode="json") for each in failed], "more": omitted}))
    elif not failed and not omitted:
        show_line(console, f"no match of {run} has failed")
    else:
        _show_all(console, run, failed, omitted)


def _find(run: Path, failed: list[FailedMatch], match: str) -> FailedMatch:
    for each in reversed(failed):
        if each.match == match:
            return each
    raise StoreError(f"{run} has no failed match '{match[:64]}'{nearest(match, (each.match for each in failed))}")


def _show_all(console: Console, run: Path, failed: list[FailedMatch], omitted: dict[int, int]) -> None:
    rows = [
        (each.match, str(each.iteration), each.game, each.kind, each.reason[:200], each.where or "") for each in failed
    ]
    show_table(console, ("match", "it", "game", "kind", "why", "where"), [[*map(printable, row)] for row in rows])
    for iteration, count in sorted(omitted.items()):
        show_line(console, f"iteration {iteration}: {count} more failed, which were only counted", "dim")
    if failed:
        console.print()
        show_line(console, f"one in full: arena show {run} {failed[-1].match} --failures")


def _show_one(console: Console, failed: FailedMatch) -> None:
    seats = ", ".join(f"{seat} = {s.policy}@{s.version} as {s.role}" for seat, s in failed.seats.items())
    show_line(
        console, f"{failed.game} {failed.match} (iteration {failed.iteration}, seed {failed.seed}): {seats}", "bold"
    )
    show_line(console, f"{failed.kind}: {failed.reason}" + (f", at {failed.where}" if failed.where else ""))
    details = {"options": json.dumps(failed.options), "draws": str(failed.draws), "attempt": str(failed.attempt + 1)}
    details |= {"to move": failed.seat, "act": failed.act or "", "began": failed.when}
    for name, value in details.items():
        if value:
            show_line(console, f"{name}: {value}", "dim")
    for title, text in (("traceback", failed.trace), ("the same match again, in Python", failed.again)):
        if text:
            console.print()
            show_line(console, f"{title}:", "bold")
            for line in printable_lines(text, max_characters=100_000):
                console.print(f"  {line}", soft_wrap=True, markup=False, highlight=False)
