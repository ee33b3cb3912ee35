"""Pictures of runs, drawn with matplotlib (the `analysis` extra), and a match as a readable dialogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.comparison import TOGETHER, Comparison
from analysis.frames import Frames, numeric
from analysis.panels import FEW, MOST, colours, curve, fit, labelled, legend, points, sheet, wrapped
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import ANY, Bounds, Interval, mean_ci, range_of, rate_ci

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CHOSEN = (
    r"panel\.payoff",
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
"""What a reader asks first, in that order: what does it earn from a panel that stands still; are its acts valid, does
it succeed, does it earn; is learning sound (how far from its reference, how random, how often clipped); how long
matches are, how many fail, how fast it goes."""


def chosen(log: Frames) -> list[str]:
    """The metrics that `curves` draws where none are named: the first of each kind in `CHOSEN`, then the others.

    >>> chosen(log)
    ['valid_rate', 'reward.opener']
    """
    names = _numeric(log.iterations)
    kinds = [[name for name in names if re.fullmatch(pattern, name)] for pattern in CHOSEN]
    first = [kind[0] for kind in kinds if kind]
    more = [name for kind in kinds for name in kind[1:]] if len(first) < MOST else []
    kept = {*[*first, *more][:MOST]}
    return [name for kind in kinds for name in kind if name in kept]


def curves(log: Frames, metrics: Sequence[str] | None = None) -> Figure:
    """A panel per metric over the iterations, a colour per run: those named, or the few that tell most (`chosen`).

    Bars are 95 % intervals over an iteration's matches (of valid acts: over turns), where the match log has the
    figure. All that can be named are the columns of `log.iterations`; KeyError, with the nearest, for an unknown one.

    >>> len(curves(log, ["valid_rate", "reward.opener"]).axes)
    2
    """
    frame = log.iterations
    names = chosen(log) if metrics is None else [_known(frame, name) for name in metrics]
    figure, axes = sheet(names)
    for axis, name in zip(axes, names, strict=True):
        known, untold = intervals(log, name), Interval(np.nan, np.nan, np.nan)
        for place, (run, colour) in enumerate(colours(log.readers).items()):
            own = frame[(frame["run"] == run) & frame[name].notna()]  # a panel is not asked in every iteration
            numbers, values = own["iteration"].tolist(), _floats(own[name])
            ends = [known.get((run, number), untold)[1:] for number in numbers]
            label = run if len(log.readers) > 1 else ""
            if numbers:
                told = [Interval(v, *end) for v, end in zip(values, ends, strict=True)]
                points(axis, numbers, told, label, colour, place)
        _finish(axis, range_of(name, _floats(frame[name])))
    legend(figure)
    return figure


def compare(arms: Mapping[str, Frames], metric: str) -> Figure:
    """One metric for several arms: the seeds' curves, their mean, and its end with a 95 % interval over them.

    Each arm's runs are its seeds; KeyError when an arm lacks the metric.

    >>> compare({"mars": log}, "valid_rate").axes[0].get_title()
    'valid_rate'
    """
    figure, (axis,) = sheet([metric])
    tables = {label: _table(log.iterations, metric) for label, log in arms.items()}
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


def compared(comparison: Comparison) -> Figure:
    """A panel per figure of a comparison, the first few: each arm's runs, their mean, and where they end.

    >>> two = analysis.comparison.compare([first, second], last=1, figures=["payoff opener"])
    >>> [axis.get_title() for axis in compared(two).axes]
    ['payoff opener']
    """
    rows = [row for row in comparison.rows if row.game != TOGETHER][:MOST]
    palette = colours(arm.label for arm in comparison.arms).values()
    several = len({row.game for row in rows}) > 1
    titles = [f"{row.game}: {row.figure}" if several else row.figure for row in rows]
    figure, axes = sheet(titles, f"ends: last {comparison.last} iterations, 95 % over {comparison.unit}")
    for axis, row in zip(axes, rows, strict=True):
        own = comparison.values[comparison.values["game"] == row.game]
        table = own.groupby(["iteration", "run"])[row.figure].mean().unstack("run").astype("float64")
        for place, (arm, colour) in enumerate(zip(comparison.arms, palette, strict=True)):
            known = table.reindex(columns=list(arm.runs)).dropna(how="all").dropna(axis=1, how="all")
            seeds = known.dropna()
            if len(seeds) < FEW:
                points(axis, [known.index.max()], [row.means[place]], arm.label, colour, place)
            else:
                curve(axis, seeds.index.tolist(), seeds.to_numpy().T, row.means[place], arm.label, colour, place)
        _finish(axis, row.bounds)
    legend(figure)
    return figure


def payoffs(log: Frames) -> Figure:
    """Mean payoff of every seat in the finished matches of each iteration, with 95 % intervals.

    >>> [line.get_label() for line in payoffs(log).axes[0].containers]
    ['opener', 'responder']
    """
    figure, (axis,) = sheet(["payoff by seat"])
    paid = log.seats.dropna(subset=["payoff"])
    for place, (name, colour) in enumerate(colours(paid["seat"].unique()).items()):
        means = _means(paid[paid["seat"] == name], "payoff", ["iteration"])
        points(axis, [number for (number,) in means], list(means.values()), name, colour, place)
    _finish(axis, ANY)
    legend(figure)
    return figure


def outcomes(log: Frames) -> Figure:
    """Draw what two sides were paid, at first and at last: a dot per outcome, larger where more matches ended so.

    The line is the Pareto front of all that was reached: no other outcome is better for one side and as good for the
    other. Crosses are what theory gives on average for the same matches, where the game reports it (columns such as
    `report.nash_payoff_first`). StoreError where more than two are paid, or only one.

    >>> [text.get_text() for text in outcomes(log).legends[0].get_texts()]
    ['iteration 0', 'iteration 2', 'front of all reached']
    """
    paid, theory = two_sides(log)
    figure, (axis,) = sheet(["payoffs"])
    first, last = paid["iteration"].min(), paid["iteration"].max()
    for number, colour in dict(zip(dict.fromkeys([first, last]), ("tab:gray", "tab:blue"), strict=False)).items():
        counts = paid[paid["iteration"] == number].groupby(["x", "y"]).size()
        x, y = zip(*counts.index, strict=True)
        sizes = 15 + 200 * counts.to_numpy() / counts.sum()
        axis.scatter(x, y, s=sizes, color=colour, alpha=0.5, linewidths=0, label=f"iteration {number}")
    x, y = zip(*pareto_front(paid[["x", "y"]].to_numpy(np.float64).tolist()), strict=True)
    axis.plot(x, y, "-", color="black", linewidth=1, label="front of all reached")
    for (name, given), mark in zip(theory.items(), "xP+*", strict=False):
        axis.plot(given[:1], given[1:], mark, color="tab:red", markersize=9, label=labelled(name))
    axis.set_xlabel(wrapped(paid.attrs["sides"][0], 40))
    axis.set_ylabel(wrapped(paid.attrs["sides"][1], 40))
    legend(figure)
    return figure


def pareto_front(outcomes: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Those pairs that no other one betters for one side without loss to the other, by the first side's payoff.

    >>> pareto_front([(1, 4), (2, 2), (3, 3), (1, 1), (3, 3), (2, 4)])
    [(2.0, 4.0), (3.0, 3.0)]
    """
    front: list[tuple[float, float]] = []
    for x, y in sorted({(float(x), float(y)) for x, y in outcomes}, reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def two_sides(log: Frames) -> tuple[pd.DataFrame, dict[str, tuple[float, float]]]:
    """Iteration and both payoffs (x, y) of each finished match, and what theories give on average.

    The sides are those that the game itself reports, such as who moved first, or else the seats.

    >>> two_sides(log)[0].attrs["sides"]
    ['opener', 'responder']
    """
    matches = log.matches
    names = [str(name) for name in matches]
    told = {match[1]: name for name in names if (match := re.fullmatch(r"report\.payoff_(\w+)", name))}
    if len(told) == 2:
        sides, theory = list(told), {}
        paid = matches[["iteration", *told.values()]].dropna().set_axis(["iteration", "x", "y"], axis=1)
        for name in dict.fromkeys(m[1] for c in names if (m := re.fullmatch(r"report\.(\w+?)_payoff_\w+", c))):
            columns = [f"report.{name}_payoff_{side}" for side in sides]
            if {*columns} <= {*names} and len(both := matches[columns].dropna()):
                theory[name] = (float(both[columns[0]].mean()), float(both[columns[1]].mean()))
    else:
        seats = log.seats.dropna(subset=["payoff"])
        wide, theory = seats.pivot(index=["run", "match", "iteration"], columns="seat", values="payoff"), {}
        sides = [str(seat) for seat in wide.columns]
        if len(sides) == 2:
            paid = wide.dropna().set_axis(["x", "y"], axis=1).reset_index()
    if len(sides) != 2:
        raise StoreError(f"a picture of outcomes is of two sides, not of {len(sides)}")
    if paid.empty:
        raise StoreError("no match has ended in which both sides were paid")
    paid.attrs["sides"] = sides
    return paid, theory


def _table(iterations: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row per iteration and a column per run."""
    return iterations.pivot(index="iteration", columns="run", values=_known(iterations, metric)).astype("float64")


def intervals(log: Frames, metric: str) -> dict[tuple[Any, ...], Interval]:
    """The metric by run and iteration, where the match log holds what it is the mean of.

    >>> len(intervals(log, "valid_rate"))
    3
    """
    by, finished = ["run", "iteration"], log.complete
    if metric == "valid_rate":
        turns = log.turns.merge(finished[["run", "match"]], on=["run", "match"])
        counts = turns.groupby(by)["valid"].agg(["sum", "size"])
        return {place: rate_ci(int(valid), int(size)) for place, valid, size in counts.itertuples()}
    if metric == "mean_payoff":
        paid = log.seats.dropna(subset=["payoff"]).merge(finished[["run", "match"]], on=["run", "match"])
        by_match = paid.groupby([*by, "match"])["payoff"].mean()
        return _means(by_match.reset_index(), "payoff", by)
    if metric.startswith("report.") and metric in _numeric(finished):
        return _means(finished.dropna(subset=[metric]), metric, by)
    return {}


def _means(rows: pd.DataFrame, name: str, by: list[str]) -> dict[tuple[Any, ...], Interval]:
    """The metric by run and iteration, over what was played there."""
    bounds = range_of(name, rows[name].tolist())
    return {place: mean_ci(_floats(own), bounds) for place, own in rows.groupby(by)[name]}


def _floats(values: pd.Series[Any]) -> list[float]:
    return values.astype("float64").tolist()


def _finish(axis: Axes, bounds: Bounds) -> None:
    from matplotlib.ticker import MaxNLocator

    fit(axis, bounds)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def dialogue(log: Frames, match: str) -> str:
    """A match as plain text: who said what, what it earned and was credited; StoreError for an unknown id.

    Control characters are removed, so the text is safe to print; it holds no markup.

    >>> print(dialogue(log, "0001-0002").splitlines()[0])
    match 0001-0002 of negotiation, iteration 1
    """
    rows = log.matches[log.matches["match"] == match]
    runs = ", ".join(log.readers)
    if rows.empty:
        near = get_close_matches(match[:64], log.matches["match"].tolist(), n=1)
        hint = f" — did you mean '{printable(near[0])}'?" if near else ""
        raise StoreError(f"{runs} has no match '{printable(match[:64])}'{hint}")
    if len(rows) > 1:
        raise StoreError(f"several of {runs} have a match '{printable(match)}': load one of them")
    head = rows.iloc[0]
    lines = [f"match {printable(match)} of {printable(head['game'])}, iteration {head['iteration']}"]
    for turn in log.turns[log.turns["match"] == match].to_dict("records"):
        lines += _spoken({str(name): value for name, value in turn.items()})
    paid = log.seats[log.seats["match"] == match].dropna(subset=["payoff"])
    return "\n".join([*lines, *_ending(head, dict(zip(paid["seat"], paid["payoff"], strict=True)))])


def _spoken(turn: Mapping[str, Any]) -> list[str]:
    mark = "" if turn["valid"] else "  (not a valid act)"
    mark += "  (cut at its limit of tokens)" if turn["finish"] == "length" else ""
    lines = [f"{turn['turn'] + 1:>3}  {printable(turn['seat'])}: {printable(turn['action']) or '…'}{mark}"]
    lines += [f"       says    {printable(turn['public'])}"] if turn["public"] else []
    lines += [f"       thinks  {printable(turn['private'])}"] if turn["private"] else []
    parts = {name: value for name, value in turn.items() if name.startswith("reward.") and value}
    named = ", ".join(f"{printable(name[7:])} {value:+.2f}" for name, value in parts.items())
    credit = "not credited" if pd.isna(turn["advantage"]) else f"advantage {turn['advantage']:+.3f}"
    return [*lines, f"       earned  {turn['reward']:+.2f}{f' ({named})' if named else ''}, {credit}"]


def _ending(match: pd.Series[Any], payoffs: Mapping[str, float]) -> list[str]:
    if match["status"] != "finished":
        return [f"failed: {printable(match['reason'])}"]
    report = {name[7:]: match[name] for name in match.index if name.startswith("report.") and not pd.isna(match[name])}
    told = {"payoff": payoffs, "report": report}
    lines = {kind: [f"{printable(name)} {_figure(value)}" for name, value in own.items()] for kind, own in told.items()}
    return [f"{kind}: {', '.join(own)}" for kind, own in lines.items() if own]


def _figure(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else printable(str(value))


def _numeric(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name in frame.columns if name != "iteration" and numeric(frame[name])]


def _known(frame: pd.DataFrame, name: str) -> str:
    if name not in frame.columns:
        near = get_close_matches(name, [str(column) for column in frame.columns], n=1)
        raise KeyError(f"no metric {name!r}" + (f" — did you mean {near[0]!r}?" if near else ""))
    return name
