"""Text output of the commands: lines, frameless tables, numbers, intervals and verdicts on differences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # NumPy takes longer to load than `arena --help` to answer
    from arena.statistics import Interval

MIN_NAME_WIDTH = 12
"""Terminal cells that a folded name keeps."""
MORE_IS_BETTER = ("valid", "deal", "payoff", "win", "joint value", "efficiency", "success", "score", "solved", "right")
LESS_IS_BETTER = ("invalid", "illegal", "regret", "repeated", "pareto_distance", "exploitability", "truncated")
_MINUS_ZERO = re.compile(r"^-(0(?:\.0*)?)(?=%?$)")
Cell = str | Text


def show_line(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print the text as one line without control characters, which a terminal may wrap."""
    from arena.plain import printable  # loads NumPy

    console.print(Text(" " * indent + printable(text), style=style), soft_wrap=True)


def format_number(value: float | None, form: str = "{:.3g}") -> str:
    """Return a number for a table, without minus before zero; a dash for None and NaN."""
    text = "–" if value is None or value != value else form.format(value)
    return _MINUS_ZERO.sub(lambda match: "+" * ("+" in form) + match[1], text)


def format_interval(ci: Interval, form: str = "{:.2f}") -> str:
    """Return an estimate with its interval, `0.54 [0.49, 0.59]`, or the estimate alone if the bounds are NaN."""
    estimate, low, high = (format_number(value, form) for value in ci)
    return estimate if ci.low != ci.low else f"{estimate} [{low}, {high}]"


def format_difference(name: str, difference: Interval, text: str) -> Text:
    """Return the difference marked ▲ more, ▼ less or ≈ within noise; green if better, red if worse.

    The direction that is better depends on the figure's `name`, and is spelled out if less is better.
    """
    if not (difference.low > 0 or difference.high < 0):
        return Text(f"≈ {text}")
    is_higher = difference.low > 0
    figure = name.rpartition(": ")[2].removeprefix("mean ")
    less_is_better = figure.startswith(LESS_IS_BETTER)
    is_known = less_is_better or figure.startswith(MORE_IS_BETTER)
    is_good = is_higher is not less_is_better
    word = f" ({'better' if is_good else 'worse'})" if less_is_better else ""
    return Text(f"{'▲' if is_higher else '▼'} {text}{word}", style=("green" if is_good else "red") if is_known else "")


def make_table(*columns: str, justify: Literal["left", "right"] = "left") -> Table:
    """Return a table without frame. The first column holds names and may fold; the others never do."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for n, name in enumerate(columns):
        table.add_column(Text(name), overflow="fold", no_wrap=n > 0, justify=justify if n else "left")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print the table at its natural width; in a narrow terminal names fold first, then lines wrap."""
    natural = Measurement.get(console, console.options.update(width=10_000), table).maximum
    if console.is_terminal:
        names = max(cell_len(str(name)) for name in table.columns[0].cells)
        table.width = max(natural - max(0, names - MIN_NAME_WIDTH), min(natural, console.width))
    else:
        table.width = natural
    console.print(table, crop=False)


def show_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[Cell]], justify: Literal["left", "right"] = "left"
) -> None:
    """Print a table without frame: a header per column, then the rows. The first column holds names and may fold."""
    table = make_table(*columns, justify=justify)
    for row in rows:
        table.add_row(*(Text(value) if isinstance(value, str) else value for value in row))
    print_table(console, table)


def print_rows(console: Console, rows: Sequence[dict[str, str]], as_json: bool) -> None:
    """Print rows of texts, all with the same keys, as a table or as JSON."""
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, overflow="fold", no_wrap=n == 0)
    for row in rows:
        table.add_row(*map(Text, row.values()))
    console.print(table)
