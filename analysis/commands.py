"""Commands that `analysis` adds to `arena` by entry points. Heavy imports are inside the functions."""

from __future__ import annotations

import csv
import json
import math
import sys
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

MAX_ROWS, MAX_SETTINGS, MAX_LINES = 200, 12, 8
"""Maximum numbers in the terminal: rows of a table, differing settings, lines of a search result."""
PLAIN_WIDTH = 1000
"""Width of output that does not go to a terminal, in characters."""
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
    """Query runs in SQL: tables runs, iterations, matches, seats, turns, messages, tokens (docs/analysis.md).

    A column with a dot in its name needs double quotes: "report.deal". The query sees only these runs.

    Example: arena sql runs/latest "select role, avg(advantage) from turns group by role"
    """
    from analysis.frames import load
    from analysis.query import run_query

    if as_json and as_csv:
        raise ConfigError("--json and --csv: give one of them")
    table = run_query(load(runs), query)
    rows = (dict(zip(table.column_names, values, strict=True)) for values in _iterate_rows(table))
    if as_json:
        print(json.dumps([{name: _to_json(value) for name, value in row.items()} for row in rows]))
    elif as_csv:
        lines = [[_csv_cell(value) for value in values] for values in _iterate_rows(table)]  # complete before printing
        csv.writer(sys.stdout, lineterminator="\n").writerows([[*map(_csv_cell, table.column_names)], *lines])
    else:
        _print_table(table)


def compare(
    runs: Runs,
    last: Annotated[int, typer.Option(min=1, help="Number of last iterations per run.")] = 5,
    figure: Annotated[list[str] | None, typer.Option(help="Only this figure, such as efficiency; repeatable.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw curves and compared means into this PNG file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the results of several runs with 95 % intervals over seeds or matches, paired by seed or deal.

    Runs that differ only in their seed form an arm; other arms are compared with the first. Four or more seeds per arm
    add interquartile means with a stratified bootstrap (Agarwal et al. 2021).

    Example: arena compare runs/mars-0 runs/mars-1 runs/rae-0 runs/rae-1 --plot compared.png
    """
    from analysis.comparison import compare as compare_runs

    require_output("--plot", plot, PICTURE)
    comparison = compare_runs(runs, last, figure or ())
    if plot:
        from analysis.plots import plot_comparison
        from arena.store.plots import save_plot

        save_plot(lambda: plot_comparison(comparison), plot)
    if as_json:
        print(json.dumps(_comparison_json(comparison)))
    else:
        _print_comparison(comparison, figure or ())


def find(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/latest.", show_default=False)],
    query: Annotated[str, typer.Argument(help="Text to search for, in quotes.")] = "",
    words: Annotated[bool, typer.Option("--words", help="Search by plain words (BM25) instead of meaning.")] = False,
    regex: Annotated[bool, typer.Option("--regex", help="Search by a regular expression (RE2).")] = False,
    where: Annotated[str, typer.Option(help="SQL condition on the turns or matches, as in arena sql.")] = "",
    of: Annotated[
        str | None, typer.Option(help="Texts to search: turns (default), thoughts (private texts) or whole matches.")
    ] = None,
    like: Annotated[str, typer.Option(help="Find matches similar to this one, by its id, instead of a query.")] = "",
    n: Annotated[int, typer.Option("-n", min=1, help="Number of results.")] = 10,
    as_json: Json = False,
) -> None:
    """Search a run's texts by meaning, words, a regular expression or a condition (docs/analysis.md).

    Equal texts are one result, with their count, first occurrence, and the preceding turn. Scores: cosine by meaning,
    BM25 by words; a regular expression or a condition alone gives no ranking.

    Example: arena find runs/latest "offers everything, then walks" --of matches
    """
    from analysis.finding import UNITS, By, nearest
    from analysis.finding import find as find_texts
    from analysis.frames import load
    from arena.plain import printable
    from games import names

    if words and regex:
        raise ConfigError("--words and --regex: give one of them")
    unit_name = "turns" if of is None else of
    unit = next((unit for unit in UNITS if unit == unit_name), None)
    if unit is None:
        hint = names.nearest(unit_name, UNITS)
        raise ConfigError(f"--of {printable(unit_name[:64])}: unknown unit of text{hint} (one of: {', '.join(UNITS)})")
    if like and (query or words or regex or where or of not in (None, "matches")):
        raise ConfigError("--like finds whole matches similar to one: leave the query, its options and --of out")
    by: By = "words" if words else "regex" if regex else "meaning"
    log = load(run)
    table = nearest(log, like, n) if like else find_texts(log, query, by, unit, where, n)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    if as_json:
        print(json.dumps([{str(name): _to_json(value) for name, value in row.items()} for row in rows]))
    else:
        _print_results(rows)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/latest.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Output file; default NAME.html in this folder.")] = None,
) -> None:
    """Write a run as one HTML page: summary, curves, league, and matches with their credit (docs/analysis.md).

    The file is the page of arena view, self-contained: it loads nothing, and runs only its own script, whatever models
    wrote.

    Example: arena report runs/latest --out report.html
    """
    from analysis.frames import load
    from analysis.report import report as make_report
    from arena.cli.page_data import deal_facts, find_marks, list_theory_values
    from arena.plain import printable

    require_output("--out", out, REPORT)
    log = load(run)
    path = out or Path(f"{next(iter(log.readers))}.html")
    require_output("--out", path, REPORT)
    theory = {game: list_theory_values(game) for game in map(str, log.matches["game"].unique())}
    page = REPORT.signature + b"\n" + make_report(log, theory, deal_facts, find_marks).encode()
    write_output("--out", path, REPORT, page)
    _console().print(f"{printable(str(path))}: {len(page) // 1000} kB")


def view(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN...]", help="Runs, or folders of runs.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Also open the page in a browser.")] = True,
    play: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Show runs as they happen, and matches as their players saw them, in a browser (docs/view.md).

    Without RUN, shows all runs in runs/. Only the page's buttons change anything. The link works until Ctrl-C.

    Example: arena view runs/latest
    """
    import webbrowser

    from analysis.view.server import serve
    from analysis.view.services import Services
    from arena.cli import page_data

    def show_link(link: str) -> None:
        print(f"{link}\n(Ctrl-C ends)", flush=True)
        if browser and sys.stdout.isatty():
            webbrowser.open(link)

    program = [sys.executable, "-P", "-m", "arena"]
    services = Services(
        page_data.deal_facts, page_data.list_theory_values, page_data.compare_estimators, page_data.list_estimators,
        page_data.token_texts, program, page_data.find_marks,
    )  # fmt: skip
    try:
        seat = [str(part) for part in json.loads(play)] if play else []  # only set by `arena play --web`
    except (ValueError, TypeError):
        raise ConfigError("--play is for arena play --web") from None
    serve(runs or ([] if seat else [Path("runs")]), services, port, show_link, seat)


def _print_results(rows: Sequence[Mapping[Any, Any]]) -> None:
    """Print each search result's score, match and turn, and up to `MAX_LINES` lines of its text."""
    from rich.text import Text

    from arena.plain import printable

    console = _console()
    for row in rows:
        speaker = [f"turn {row['turn'] + 1}, {printable(row['seat'])}"] if "turn" in row else []
        heading = ", ".join([printable(row["match"]), *speaker, f"iteration {row['iteration']}"])
        repeats = f" and {row['times'] - 1} more" if row["times"] > 1 else ""
        score = "" if row["score"] is None else f"{row['score']:.2f}  "
        console.print(Text(f"{score}{heading}{repeats}", "bold"), soft_wrap=True)
        if before := row.get("before"):
            console.print(Text(f"      after {printable(before)}", "dim"), soft_wrap=True)
        lines = row["text"].splitlines()
        for line in lines[:MAX_LINES]:
            console.print(Text(f"      {printable(line)}"), soft_wrap=True)
        if len(lines) > MAX_LINES:
            console.print(Text(f"      … {len(lines) - MAX_LINES} more", "dim"))
    if not rows:
        console.print(Text("nothing found"))


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Convert the comparison to JSON values. Intervals become [estimate, low, high], with null for unknown bounds."""
    labels = [arm.label for arm in comparison.arms]

    def by_label(names: Sequence[str], intervals: Iterable[Interval]) -> dict[str, Any]:
        return dict(zip(names, ([_to_json(value) for value in interval] for interval in intervals), strict=False))

    return {
        "arms": {arm.label: list(arm.runs) for arm in comparison.arms},
        "intervals_over": comparison.unit,
        "last": comparison.last,
        "differs": {name: list(values) for name, values in comparison.differs.items()},
        "rows": [
            {
                "game": row.game, "figure": row.figure,
                "means": by_label(labels, row.means), "iqm": by_label(labels, row.iqm),
                "differences": by_label(labels[1:], row.differences), "paired": row.paired or None,
            }
            for row in comparison.rows
        ],
    }  # fmt: skip


def _print_comparison(comparison: Comparison, requested: Sequence[str]) -> None:
    """Print a table per game, requested figures without a result, each arm's runs, and differing settings."""
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
            means = [_format_interval(mean) for mean in row.means]
            differences = [f"{_sign(difference)} {_format_interval(difference)}" for difference in row.differences]
            table.add_row(Text(printable(row.figure)), *means, *differences, row.paired)
            if row.iqm:
                table.add_row(Text("  interquartile mean", style="dim"), *map(_format_interval, row.iqm))
        console.print(table)
        console.print()
    figures_shown = {row.figure for row in comparison.rows}
    if missing := [printable(name) for name in requested if name not in figures_shown]:
        console.print(Text(f"{', '.join(missing)}: missing in an arm, or the same in all matches"), soft_wrap=True)
    elif not figures_shown:
        console.print(Text("every figure is missing in an arm, or the same in all matches"))
    for arm, label in zip(comparison.arms, labels, strict=True):
        console.print(Text(f"{label}: {', '.join(map(printable, arm.runs))}", style="dim"), soft_wrap=True)
    for name, values in list(comparison.differs.items())[:MAX_SETTINGS]:
        console.print(Text(printable(f"{name}: {' | '.join(values)}"), style="dim"), soft_wrap=True)
    single = ", ".join(label for arm, label in zip(comparison.arms, labels, strict=True) if len(arm.runs) == 1)
    if comparison.unit == "matches":
        console.print(Text("one run per arm: intervals are over matches and say nothing about other seeds"))
    elif single:
        console.print(Text(f"no interval with one run: {single} may differ with another seed"), soft_wrap=True)


def _sign(difference: Interval) -> str:
    """Return ▲ or ▼ if the difference's interval excludes 0, ≈ if it contains 0, ? if it is unknown."""
    if math.isnan(difference.low):
        return "?"
    return "▲" if difference.low > 0 else "▼" if difference.high < 0 else "≈"


def _format_interval(interval: Interval) -> str:
    known = math.isfinite(interval.low)
    return f"{interval.estimate:.3g} [{interval.low:.3g}, {interval.high:.3g}]" if known else f"{interval.estimate:.3g}"


def _console() -> PlainConsole:
    """Return a console, `PLAIN_WIDTH` characters wide if the output is not a terminal."""
    return PlainConsole() if sys.stdout.isatty() else PlainConsole(width=PLAIN_WIDTH)


def _iterate_rows(table: Any) -> Iterable[tuple[Any, ...]]:
    """Yield the rows of an Arrow table as tuples of Python values. Columns may have equal names."""
    return (values for batch in table.to_batches() for values in zip(*map(_to_values, batch.columns), strict=True))


def _to_values(column: Any) -> list[Any]:
    """Return an Arrow column as Python values. Raises ConfigError for dates outside Python's range."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        raise ConfigError(
            "a date is outside the years 1 to 9999, such as infinity: convert it to text, as in day::varchar"
        ) from None


def _print_table(table: Any) -> None:
    """Print the first `MAX_ROWS` rows of an Arrow table, and the number of further rows."""
    from rich.table import Table
    from rich.text import Text

    from arena.plain import printable

    console, grid = _console(), Table(box=None, pad_edge=False, header_style="bold")
    for field in table.schema:
        number = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
        grid.add_column(Text(printable(field.name)), justify="right" if number else "left", overflow="fold")
    for values in _iterate_rows(table.slice(0, MAX_ROWS)):
        grid.add_row(*(Text(printable(_format_cell(value))) for value in values))
    console.print(grid)
    if len(table) > MAX_ROWS:
        console.print(Text(f"… and {len(table) - MAX_ROWS} rows more: ask for fewer, or add --csv", style="dim"))


def _format_cell(value: Any) -> str:
    """Format a cell for the terminal: floats with four digits or as integers, None as ""."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 2**53 else f"{value:.4g}"
    return "" if value is None else str(value)


def _csv_cell(value: Any) -> Any:
    """Return the cell's value for CSV. Removes control characters if the output is a terminal."""
    from arena.plain import printable

    return printable(value) if isinstance(value, str) and sys.stdout.isatty() else value


def _to_json(value: Any) -> Any:
    """Convert a value to JSON types: NaN and infinity to null, other types to text."""
    if isinstance(value, dict):
        return {str(name): _to_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
