"""The commands that the analysis adds to `arena` (pyproject's entry points): thin, and light until they are called."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena.cli.console import PlainConsole
from arena.errors import ConfigError
from arena.store.outputs import PICTURE, REPORT, require_output, write_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.comparison import Comparison
    from arena.statistics import Interval

SHOWN, SETTINGS, LINES = 200, 12, 8
"""Rows that a table in the terminal has at most, settings listed as different, lines of a match."""
WIDEST = 1000
"""Columns of a line that is not for a terminal."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as runs/latest.", show_default=False)
]


def sql(
    runs: Runs,
    query: Annotated[str, typer.Argument(help="One SELECT, in quotes.", show_default=False)],
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, all rows.")] = False,
) -> None:
    """Ask runs in SQL: tables runs, iterations, matches, seats, turns, messages, tokens (docs/analysis.md).

    A column with a dot stands in double quotes: "report.deal". The query sees these runs and nothing else.

    Example: arena sql runs/latest "select role, avg(advantage) from turns group by role"
    """
    from analysis.frames import load
    from analysis.query import answer

    if as_json and as_csv:
        raise ConfigError("--json and --csv: give one of them")
    table = answer(load(runs), query)
    rows = (dict(zip(table.column_names, values, strict=True)) for values in _rows(table))
    if as_json:
        print(json.dumps([{name: _plain(value) for name, value in row.items()} for row in rows]))
    elif as_csv:
        lines = [[_cell(value) for value in values] for values in _rows(table)]  # all, before anything is printed
        csv.writer(sys.stdout, lineterminator="\n").writerows([[*map(_cell, table.column_names)], *lines])
    else:
        _show(table)


def compare(
    runs: Runs,
    last: Annotated[int, typer.Option(min=1, help="How many of its last iterations count for a run.")] = 5,
    figure: Annotated[list[str] | None, typer.Option(help="Only this figure, such as efficiency; repeatable.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw curves and ends into this file, as PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Compare what came of several runs, with intervals: over seeds where there are several, paired by seed or deal.

    Runs that differ in nothing but their seed are one arm; the others are compared with the first one's. With four or
    more seeds an arm, interquartile means with a stratified bootstrap (Agarwal et al. 2021) are added.

    Example: arena compare runs/mars-0 runs/mars-1 runs/rae-0 runs/rae-1 --plot compared.png
    """
    from analysis.comparison import compare as found

    require_output("--plot", plot, PICTURE)
    comparison = found(runs, last, figure or ())
    if plot:
        _draw(comparison, plot)
    if as_json:
        print(json.dumps(_comparison(comparison)))
    else:
        _show_comparison(comparison, figure or ())


def find(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/latest.", show_default=False)],
    query: Annotated[str, typer.Argument(help="What to look for, in quotes.")] = "",
    words: Annotated[bool, typer.Option("--words", help="By plain words (BM25) instead of meaning.")] = False,
    regex: Annotated[bool, typer.Option("--regex", help="By a regular expression (RE2).")] = False,
    where: Annotated[str, typer.Option(help="Only where this SQL condition holds, as in arena sql.")] = "",
    of: Annotated[
        str | None, typer.Option(help="turns (unless told otherwise), thoughts (what nobody heard), matches as wholes.")
    ] = None,
    like: Annotated[str, typer.Option(help="Matches like this one, by its id, instead of a query.")] = "",
    n: Annotated[int, typer.Option("-n", min=1, help="How many findings.")] = 10,
    as_json: Json = False,
) -> None:
    """Find where in a run something was said: by meaning, words, an expression or a condition (docs/analysis.md).

    Equal texts are one finding, with how often and where they were first said, and the turn before. Scores: cosine
    by meaning, BM25 by words; an expression or a condition alone ranks nothing.

    Example: arena find runs/latest "offers everything, then walks" --of matches
    """
    from analysis.finding import By, nearest
    from analysis.finding import find as found
    from analysis.frames import load
    from analysis.texts import UNITS
    from arena.plain import printable

    if words and regex:
        raise ConfigError("--words and --regex: give one of them")
    asked = "turns" if of is None else of
    unit = next((unit for unit in UNITS if unit == asked), None)
    if unit is None:
        near = get_close_matches(asked, UNITS, n=1)
        hint = f" — did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"--of {printable(asked[:64])}: there are no such texts{hint} (one of: {', '.join(UNITS)})")
    if like and (query or words or regex or where or of not in (None, "matches")):
        raise ConfigError("--like looks for whole matches like one of them: leave the query, its options and --of out")
    by: By = "words" if words else "regex" if regex else "meaning"
    log = load(run)
    table = nearest(log, like, n) if like else found(log, query, by, unit, where, n)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    if as_json:
        print(json.dumps([{str(name): _plain(value) for name, value in row.items()} for row in rows]))
    else:
        _show_found(rows)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/latest.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="The file; default NAME.html in this folder.")] = None,
    meaning: Annotated[bool, typer.Option("--meaning", help="Map strategies by meaning, not by words.")] = False,
) -> None:
    """Write a run as one HTML page: what was learned, pictures, matches with their credit (docs/analysis.md).

    The file needs nothing else: it is the page of arena view. It runs its own script alone and loads nothing, whatever
    models wrote.

    Example: arena report runs/latest --out report.html
    """
    from analysis.frames import load
    from analysis.report import report as written
    from arena.cli.page_data import deal_facts, theory_values
    from arena.plain import printable

    require_output("--out", out, REPORT)
    log = load(run)
    path = out or Path(f"{next(iter(log.readers))}.html")
    require_output("--out", path, REPORT)
    stated = {game: theory_values(game) for game in map(str, log.matches["game"].unique())}
    page = REPORT.mark + b"\n" + written(log, "minilm" if meaning else "hashed", stated, deal_facts).encode()
    write_output("--out", path, REPORT, page)
    _console().print(f"{printable(str(path))}: {len(page) // 1000} kB")


def view(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN...]", help="Runs, or a folder of them.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser, too.")] = True,
    play: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Look at runs as they happen, and at matches as their players saw them, in a browser (docs/view.md).

    Without a RUN, all in runs/. The page changes nothing but by its own buttons; its link works until Ctrl-C.

    Example: arena view runs/latest
    """
    import webbrowser

    from analysis.view.given import Given
    from analysis.view.server import serve
    from arena.cli import page_data

    def opened(link: str) -> None:
        print(f"{link}\n(Ctrl-C ends)", flush=True)
        if browser and sys.stdout.isatty():
            webbrowser.open(link)

    program = [sys.executable, "-P", "-m", "arena"]
    given = Given(
        page_data.deal_facts, page_data.theory_values, page_data.compare_estimators, page_data.list_estimators,
        page_data.token_texts, program,
    )  # fmt: skip
    try:
        seat = [str(part) for part in json.loads(play)] if play else []  # by `arena play --web` alone
    except (ValueError, TypeError):
        raise ConfigError("--play is for arena play --web") from None
    serve(runs or ([] if seat else [Path("runs")]), given, port, opened, seat)


def _show_found(rows: Sequence[Mapping[Any, Any]]) -> None:
    """A line or a few for each finding, and where to read more."""
    from rich.text import Text

    from arena.plain import printable

    console = _console()
    for row in rows:
        who = [f"turn {row['turn'] + 1}, {printable(row['seat'])}"] if "turn" in row else []
        where = ", ".join([printable(row["match"]), *who, f"iteration {row['iteration']}"])
        often = f" and {row['times'] - 1} more" if row["times"] > 1 else ""
        score = "" if row["score"] is None else f"{row['score']:.2f}  "
        console.print(Text(f"{score}{where}{often}", "bold"), soft_wrap=True)
        if before := row.get("before"):
            console.print(Text(f"      after {printable(before)}", "dim"), soft_wrap=True)
        lines = row["text"].splitlines()
        for line in lines[:LINES]:
            console.print(Text(f"      {printable(line)}"), soft_wrap=True)
        if len(lines) > LINES:
            console.print(Text(f"      … {len(lines) - LINES} more", "dim"))
    if not rows:
        console.print(Text("nothing found"))


def _draw(comparison: Comparison, path: Path) -> None:
    try:
        from analysis.panels import written
        from analysis.plots import compared

        figure = compared(comparison)
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'arena-selfplay[analysis]'") from None
    kept = io.BytesIO()
    written(figure, kept)
    write_output("--plot", path, PICTURE, kept.getvalue())


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """Data for scripts: every interval as [estimate, low, high], null where the data cannot say."""
    labels = [arm.label for arm in comparison.arms]

    def ends(names: Sequence[str], intervals: Iterable[Interval]) -> dict[str, Any]:
        return dict(zip(names, ([_plain(value) for value in interval] for interval in intervals), strict=False))

    return {
        "arms": {arm.label: list(arm.runs) for arm in comparison.arms},
        "intervals_over": comparison.unit,
        "last": comparison.last,
        "differs": {name: list(values) for name, values in comparison.differs.items()},
        "rows": [
            {
                "game": row.game, "figure": row.figure, "means": ends(labels, row.means), "iqm": ends(labels, row.iqm),
                "differences": ends(labels[1:], row.differences), "paired": row.paired or None,
            }
            for row in comparison.rows
        ],
    }  # fmt: skip


def _show_comparison(comparison: Comparison, asked: Sequence[str]) -> None:
    """A table for each game, what of what was asked for is in none, and what the arms are."""
    from rich.table import Table
    from rich.text import Text

    from arena.plain import printable

    console = _console()
    labels = [printable(arm.label) for arm in comparison.arms]
    for game in dict.fromkeys(row.game for row in comparison.rows):
        console.print(
            Text(f"{printable(game)} (last {comparison.last} iterations, 95 % over {comparison.unit})", "bold")
        )
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("", *labels, *(f"{label} - {labels[0]}" for label in labels[1:]), "paired"):
            table.add_column(name, overflow="fold")
        for row in (row for row in comparison.rows if row.game == game):
            means = [_interval(mean) for mean in row.means]
            differences = [f"{_mark(difference)} {_interval(difference)}" for difference in row.differences]
            table.add_row(Text(printable(row.figure)), *means, *differences, row.paired)
            if row.iqm:
                table.add_row(Text("  interquartile mean", style="dim"), *map(_interval, row.iqm))
        console.print(table)
        console.print()
    shown = {row.figure for row in comparison.rows}
    if lacking := [printable(name) for name in asked if name not in shown]:
        console.print(Text(f"{', '.join(lacking)}: not known of all arms, or the same in all matches"), soft_wrap=True)
    elif not shown:
        console.print(Text("no figure is known of all arms and differs between matches"))
    for arm, label in zip(comparison.arms, labels, strict=True):
        console.print(Text(f"{label}: {', '.join(map(printable, arm.runs))}", style="dim"), soft_wrap=True)
    for name, values in list(comparison.differs.items())[:SETTINGS]:
        console.print(Text(printable(f"{name}: {' | '.join(values)}"), style="dim"), soft_wrap=True)
    single = ", ".join(label for arm, label in zip(comparison.arms, labels, strict=True) if len(arm.runs) == 1)
    if comparison.unit == "matches":
        console.print(Text("one run an arm: intervals are over its matches and say nothing of other seeds"))
    elif single:
        console.print(Text(f"no interval with one run: {single} may be otherwise with another seed"), soft_wrap=True)


def _mark(difference: Interval) -> str:
    """Return True if it leaves out 0, None where that is not known."""
    if math.isnan(difference.low):
        return "?"
    return "▲" if difference.low > 0 else "▼" if difference.high < 0 else "≈"


def _interval(interval: Interval) -> str:
    known = math.isfinite(interval.low)
    return f"{interval.estimate:.3g} [{interval.low:.3g}, {interval.high:.3g}]" if known else f"{interval.estimate:.3g}"


def _console() -> PlainConsole:
    """As wide as what is printed, where nobody looks."""
    return PlainConsole() if sys.stdout.isatty() else PlainConsole(width=WIDEST)


def _rows(table: Any) -> Iterable[tuple[Any, ...]]:
    """Row by row; by place, as two columns may have one name."""
    return (values for batch in table.to_batches() for values in zip(*map(_values, batch.columns), strict=True))


def _values(column: Any) -> list[Any]:
    """Python's; ConfigError for a day for which it has none."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        raise ConfigError(
            "there is a day beyond the years 1 to 9999, such as infinity: ask for it as text, as in day::varchar"
        ) from None


def _show(table: Any) -> None:
    """As many rows as one can read, and how many there are besides."""
    from rich.table import Table
    from rich.text import Text

    from arena.plain import printable

    console, grid = _console(), Table(box=None, pad_edge=False, header_style="bold")
    for field in table.schema:
        number = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
        grid.add_column(Text(printable(field.name)), justify="right" if number else "left", overflow="fold")
    for values in _rows(table.slice(0, SHOWN)):
        grid.add_row(*(Text(printable(_read(value))) for value in values))
    console.print(grid)
    if len(table) > SHOWN:
        console.print(Text(f"… and {len(table) - SHOWN} rows more: ask for fewer, or add --csv", style="dim"))


def _read(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 2**53 else f"{value:.4g}"
    return "" if value is None else str(value)


def _cell(value: Any) -> Any:
    """A value as CSV has it, where somebody looks without what could steer the terminal."""
    from arena.plain import printable

    return printable(value) if isinstance(value, str) and sys.stdout.isatty() else value


def _plain(value: Any) -> Any:
    """A value as JSON has it: what it has no number for is null, what it has no kind for is text."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
