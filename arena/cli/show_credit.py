"""A comparison of estimators as a person reads it. All text of models is shown as plain text, never as markup."""

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.live import cell
from arena.cli.tables import print_table
from arena.credit.compare import Comparison
from arena.plain import printable
from arena.store.reader import RunReader

_SAID = 60
"""Characters of a turn that are shown beside its advantages."""


def show_comparison(console: Console, run: Path, comparison: Comparison, match: str) -> None:
    """The estimators' overview, how alike they are, whom they favour, and one match turn by turn."""
    count = f"{len(comparison.turns)} turns of {comparison.turns['match'].nunique()} matches"
    console.print(Text(f"{run}: {count}", style="bold"), soft_wrap=True)
    overview = comparison.overview()
    silent = [name for name, zeros in overview["zeros"].items() if zeros == 1]
    for name in ("zeros", "praised"):
        overview[name] = overview[name].map("{:.0%}".format)
    _print(console, overview)
    if silent:
        alone = "nothing in its groups differs; groups of one deal need play.group above 1"
        console.print(Text(f"0 on every turn: {', '.join(map(str, silent))} ({alone})", style="dim"), soft_wrap=True)
    console.print(Text("\ncorrelation over all turns"))
    _print(console, comparison.correlations())
    console.print(Text("\nmean advantage by role, in deviations of the estimator (0 favours nobody)"))
    _print(console, _titled(comparison.bias()))
    console.print(Text(f"\nmatch {match}, turn by turn (arena show {run} {match})"), soft_wrap=True)
    _show_match(console, run, comparison, match)


def _show_match(console: Console, run: Path, comparison: Comparison, match: str) -> None:
    """Every turn of the match; those of nobody in training without numbers."""
    own = comparison.turns[comparison.turns["match"] == match].set_index("turn")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("turn", "reward", *comparison.estimators):
        table.add_column(name, justify="right")
    table.add_column("said", overflow="ellipsis", no_wrap=True, max_width=_SAID)
    for turn in RunReader(run).match(match)["turns"]:
        said = Text(printable(turn["raw"].strip() or "(nothing)"), style="" if turn["valid"] else "red")
        seat = Text(f"{printable(turn['seat'])}: ", style="cyan").append(said)
        if turn["index"] in own.index:
            row = own.loc[turn["index"]]
            figures = [_number(row[name]) for name in ("reward", *comparison.estimators)]
        else:
            figures = [""] * (1 + len(comparison.estimators))
        table.add_row(str(turn["index"] + 1), *figures, seat)
    print_table(console, table)


def _titled(bias: pd.DataFrame) -> pd.DataFrame:
    """Rows named by role, and by game too where there are several."""
    games = bias.index.get_level_values("game").nunique() > 1
    return bias.set_axis([f"{game}.{role}" if games else role for game, role in bias.index])


def _print(console: Console, frame: pd.DataFrame) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in frame.columns:
        table.add_column(str(name), justify="right")
    for index, row in frame.iterrows():
        table.add_row(Text(str(index)), *(_number(value) for value in row))
    print_table(console, table)


def _number(value: Any) -> str:
    return value if isinstance(value, str) else cell(float(value), "{:+.2f}")
