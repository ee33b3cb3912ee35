"""Tables of figures: no frames, verdicts on differences, whole in any terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # it brings NumPy, which takes longer to load than `arena --help` to answer
    from arena.statistics import Interval

NARROWEST = 12
"""Cells that a folded name keeps."""


def bare_table(*columns: str) -> Table:
    """The first column is of names and may fold; figures never do."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for n, name in enumerate(columns):
        table.add_column(Text(name), overflow="fold", no_wrap=n > 0)
    return table


MORE_IS_BETTER = ("valid", "deal", "payoff", "win", "joint value", "efficiency", "success", "score", "solved", "right")
LESS_IS_BETTER = ("invalid", "illegal", "regret", "repeated", "pareto_distance", "exploitability", "truncated")


def verdict(name: str, difference: Interval, shown: str) -> Text:
    """▲ more, ▼ less, ≈ within noise; green for the better, and said where less is better."""
    if not (difference.low > 0 or difference.high < 0):
        return Text(f"≈ {shown}")
    more = difference.low > 0
    figure = name.rpartition(": ")[2].removeprefix("mean ")
    less_is_better = figure.startswith(LESS_IS_BETTER)
    known = less_is_better or figure.startswith(MORE_IS_BETTER)
    good = more is not less_is_better
    word = f" ({'better' if good else 'worse'})" if less_is_better else ""
    return Text(f"{'▲' if more else '▼'} {shown}{word}", style=("green" if good else "red") if known else "")


def print_table(console: Console, table: Table) -> None:
    """The table at its natural width; in a narrow terminal names fold first, then the terminal wraps lines."""
    natural = Measurement.get(console, console.options.update(width=10_000), table).maximum
    if console.is_terminal:
        names = max(cell_len(str(name)) for name in table.columns[0].cells)
        table.width = max(natural - max(0, names - NARROWEST), min(natural, console.width))
    else:
        table.width = natural
    console.print(table, crop=False)
