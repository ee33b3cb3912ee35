"""Pictures of runs, drawn with matplotlib (the `analysis` extra), and a match as a readable dialogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.frames import Run
from analysis.panels import FEW, MOST, colours, curve, fit, legend, points, sheet
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import ANY, Bounds, Interval, mean_ci, range_of, rate_ci

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CHOSEN = (
    r"valid_rate",
    r"report\.(?:.*\.)?(?:success|solved|won|deal|trade)",
    r"win_rate\..*",
    r"mean_payoff",
    r"report\.(?:.*\.)?(?:efficiency|share)",
    r"reward\..*",
    r"learn\..*\.kl",
    r"learn\..*\.entropy",
    r"learn\..*\.clipped",
    r"report\.(?:.*\.)?turns",
    r"failed_rate",
    r"tokens_per_second",
)
"""What a reader asks first, in that order: are its acts valid, does it succeed, does it earn; is learning sound (how
far from its reference, how random, how often clipped); how long matches are, how many fail, how fast it goes."""


def chosen(run: Run) -> list[str]:
    """The metrics that `curves` draws where none are named: the first of each kind in `CHOSEN`, then the others."""
    names = _numeric(run.iterations)
    kinds = [[name for name in names if re.fullmatch(pattern, name)] for pattern in CHOSEN]
    first = [kind[0] for kind in kinds if kind]
    more = [name for kind in kinds for name in kind[1:]] if len(first) < MOST else []
    kept = {*[*first, *more][:MOST]}
    return [name for kind in kinds for name in kind if name in kept]


def curves(run: Run, metrics: Sequence[str] | None = None) -> Figure:
    """A panel per metric over the iterations: those named, or the few that tell most (`chosen`).

    Bars are 95 % intervals over an iteration's matches (of valid acts: over turns), where the match log has the
    figure. All that can be named are the columns of `run.iterations`; KeyError, with the nearest, for an unknown one.
    """
    frame = run.iterations
    names = chosen(run) if metrics is None else [_known(frame, name) for name in metrics]
    figure, axes = sheet(names)
    for axis, name in zip(axes, names, strict=True):
        numbers, values = frame["iteration"].tolist(), frame[name].astype(float).tolist()
        intervals, untold = _intervals(run, name), Interval(np.nan, np.nan, np.nan)
        ends = [intervals.get(number, untold)[1:] for number in numbers]
        if numbers:
            points(axis, numbers, [Interval(v, *end) for v, end in zip(values, ends, strict=True)], "", "tab:blue")
        _finish(axis, range_of(name, values))
    return figure


def compare(runs: Mapping[str, Sequence[Run]], metric: str) -> Figure:
    """One metric for several kinds of runs: the seeds' curves, their mean, and its end with a 95 % interval over them.

    `runs` maps a label to that label's runs, one per seed; KeyError when a run lacks the metric.
    """
    figure, (axis,) = sheet([metric])
    tables = {label: _table(seeds, metric) for label, seeds in runs.items()}
    bounds = range_of(metric, [value for table in tables.values() for value in table.to_numpy().flat])
    for place, (label, colour) in enumerate(colours(tables).items()):
        rows = [row[np.isfinite(row)].tolist() for row in tables[label].to_numpy()]
        steps, means = tables[label].index.tolist(), [mean_ci(row, bounds) for row in rows]
        if len(steps) < FEW:
            points(axis, steps, means, label, colour, place)
        else:
            curve(axis, steps, tables[label].to_numpy().T, means[-1], label, colour, place)
    _finish(axis, bounds)
    legend(figure)
    return figure


def payoffs(run: Run) -> Figure:
    """Mean payoff of every seat in the finished matches of each iteration, with 95 % intervals."""
    finished = run.matches[run.matches["status"] == "finished"]
    figure, (axis,) = sheet(["payoff by seat"])
    seats = {column: column[7:] for column in finished.columns if column.startswith("payoff.")}
    for place, (name, colour) in enumerate(colours(seats).items()):
        means = _means(finished.dropna(subset=[name]), name)
        if means:
            points(axis, list(means), list(means.values()), seats[name], colour, place)
    _finish(axis, ANY)
    legend(figure)
    return figure


def _table(seeds: Sequence[Run], metric: str) -> pd.DataFrame:
    """A row per iteration and a column per seed."""
    columns = [run.iterations.set_index("iteration")[_known(run.iterations, metric)] for run in seeds]
    return pd.concat(columns, axis=1).astype(float)


def _intervals(run: Run, metric: str) -> dict[int, Interval]:
    """By iteration, where the match log holds what the metric is the mean of."""
    finished = run.matches[run.matches["status"] == "finished"]
    if metric == "valid_rate":
        counts = run.turns[run.turns["match"].isin(finished["id"])].groupby("iteration")["valid"].agg(["sum", "size"])
        return {number: rate_ci(int(valid), int(turns)) for number, valid, turns in counts.itertuples()}
    seats = [column for column in finished.columns if column.startswith("payoff.")]
    if metric == "mean_payoff" and seats:
        return _means(finished.assign(mean_payoff=finished[seats].mean(axis=1)), metric)
    if metric.startswith(("report.", "payoff.")) and metric in finished.columns:
        return _means(finished[pd.to_numeric(finished[metric], errors="coerce").notna()], metric)
    return {}


def _means(matches: pd.DataFrame, name: str) -> dict[int, Interval]:
    """By iteration, over its matches."""
    by_number: dict[int, list[float]] = {}
    for number, value in zip(matches["iteration"], matches[name].astype(float), strict=True):
        by_number.setdefault(int(number), []).append(value)
    bounds = range_of(name, matches[name].tolist())
    return {number: mean_ci(values, bounds) for number, values in sorted(by_number.items())}


def _finish(axis: Axes, bounds: Bounds) -> None:
    from matplotlib.ticker import MaxNLocator

    fit(axis, bounds)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def dialogue(run: Run, match: str) -> str:
    """A match as plain text: who said what, what it earned and was credited; StoreError for an unknown id.

    Control characters are removed, so the text is safe to print; it holds no markup.
    """
    rows = run.matches[run.matches["id"] == match]
    if rows.empty:
        near = get_close_matches(match[:64], run.matches["id"].tolist(), n=1)
        hint = f" — did you mean '{near[0]}'?" if near else ""
        raise StoreError(f"{run.path} has no match '{printable(match[:64])}'{hint}")
    head = rows.iloc[0]
    lines = [f"match {printable(match)} of {printable(head['game'])}, iteration {head['iteration']}"]
    for turn in run.turns[run.turns["match"] == match].to_dict("records"):
        lines += _spoken({str(name): value for name, value in turn.items()})
    return "\n".join([*lines, *_ending(head)])


def _spoken(turn: Mapping[str, Any]) -> list[str]:
    mark = "" if turn["valid"] else "  (not a valid act)"
    lines = [f"{turn['index'] + 1:>3}  {printable(turn['seat'])}: {printable(turn['action']) or '…'}{mark}"]
    lines += [f"       says    {printable(turn['public'])}"] if turn["public"] else []
    lines += [f"       thinks  {printable(turn['private'])}"] if turn["private"] else []
    parts = {name: value for name, value in turn.items() if name.startswith("reward.") and value}
    named = ", ".join(f"{printable(name[7:])} {value:+.2f}" for name, value in parts.items())
    credit = "not credited" if np.isnan(turn["advantage"]) else f"advantage {turn['advantage']:+.3f}"
    return [*lines, f"       earned  {turn['reward']:+.2f}{f' ({named})' if named else ''}, {credit}"]


def _ending(match: pd.Series[Any]) -> list[str]:
    if match["status"] != "finished":
        return [f"failed: {printable(match['reason'])}"]
    lines = []
    for kind in ("payoff", "report"):
        cells = {name: match[name] for name in match.index if name.startswith(f"{kind}.")}
        figures = {name[len(kind) + 1 :]: value for name, value in cells.items() if not pd.isna(value)}
        listed = ", ".join(f"{printable(name)} {_figure(value)}" for name, value in figures.items())
        lines += [f"{kind}: {listed}"] if figures else []
    return lines


def _figure(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else printable(str(value))


def _numeric(frame: pd.DataFrame) -> list[str]:
    numbers = frame.select_dtypes(include=["number", "boolean"]).columns
    return [str(name) for name in numbers if name != "iteration"]


def _known(frame: pd.DataFrame, name: str) -> str:
    if name not in frame.columns:
        near = get_close_matches(name, [str(column) for column in frame.columns], n=1)
        raise KeyError(f"no metric {name!r}" + (f" — did you mean {near[0]!r}?" if near else ""))
    return name
