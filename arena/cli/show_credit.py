"""Output of `arena credit`: a comparison of estimators as tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from arena.cli.tables import Cell, format_number, show_line, show_table
from arena.credit.compare import Comparison
from arena.plain import printable
from arena.store.reader import RunReader

MAX_REPLY = 60
"""Maximum characters of a reply beside its advantages."""


def show_comparison(console: Console, run: Path, comparison: Comparison, match: str) -> None:
    """Print the estimators' overview, correlations and bias by role, and one match turn by turn."""
    show_line(console, f"{run}: {len(comparison.turns)} turns of {comparison.turns['match'].nunique()} matches", "bold")
    overview = comparison.overview()
    all_zero = [str(name) for name, zeros in overview["zeros"].items() if zeros == 1]
    for name in ("zeros", "praised"):
        overview[name] = overview[name].map("{:.0%}".format)
    _print_frame(console, overview)
    if all_zero:
        reason = "nothing in its groups differs; groups of one deal need play.group above 1"
        show_line(console, f"0 on every turn: {', '.join(all_zero)} ({reason})", "dim")
    console.print()
    show_line(console, "correlation over all turns")
    _print_frame(console, comparison.correlations())
    console.print()
    show_line(console, "mean advantage by role, in deviations of the estimator (0 favours no role)")
    bias = comparison.bias()
    has_games = bias.index.get_level_values("game").nunique() > 1
    _print_frame(console, bias.set_axis([f"{game}.{role}" if has_games else role for game, role in bias.index]))
    console.print()
    show_line(console, f"match {match}, turn by turn (arena show {run} {match})")
    columns = ("turn", *(f"{name:>7}" for name in ("reward", *comparison.estimators)), "said")
    show_table(console, columns, _make_turn_rows(run, comparison, match))


def _make_turn_rows(run: Path, comparison: Comparison, match: str) -> Iterator[list[Cell]]:
    """Yield a row per turn of the match, without numbers for turns of untrained seats."""
    credited = comparison.turns[comparison.turns["match"] == match].set_index("turn")
    figures = ("reward", *comparison.estimators)
    for turn in RunReader(run).match(match)["turns"]:
        reply = printable(turn["raw"].strip() or "(nothing)")
        reply = reply if len(reply) <= MAX_REPLY else f"{reply[: MAX_REPLY - 1]}…"
        line = Text(f"{printable(turn['seat'])}: ", style="cyan").append(reply, "default" if turn["valid"] else "red")
        is_credited = turn["index"] in credited.index
        numbers = [_format_value(credited.loc[turn["index"]][name]) if is_credited else "" for name in figures]
        yield [str(turn["index"] + 1), *(f"{number:>7}" for number in numbers), line]


def _print_frame(console: Console, frame: pd.DataFrame) -> None:
    rows = ([str(index), *map(_format_value, row)] for index, row in frame.iterrows())
    show_table(console, ("", *map(str, frame.columns)), rows, justify="right")


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else format_number(float(value), "{:+.2f}")
