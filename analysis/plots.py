"""Matplotlib plots of runs (with the `analysis` extra), and a match as readable text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.comparison import ALL_GAMES, Comparison
from analysis.frames import Frames, is_numeric
from analysis.panels import (
    MAX_PANELS,
    MIN_CURVE_POINTS,
    add_legend,
    draw_curve,
    draw_points,
    make_sheet,
    set_y_range,
)
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import Bounds, Interval, mean_ci, range_of, rate_ci
from arena.store.plots import assign_colours
from games.names import nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PREFERRED = (
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
"""Patterns of the most informative metrics, in order: payoff against a fixed panel; valid actions, success, payoff;
learning diagnostics (KL, entropy, clipping); match length, failures, speed.
"""


def choose_metrics(log: Frames) -> list[str]:
    """Return the names of up to `MAX_PANELS` metrics that `curves` draws by default, in the order of `PREFERRED`.

    Each pattern contributes its first match, and further matches if there is room.

    >>> choose_metrics(log)
    ['valid_rate', 'reward.opener']
    """
    names = _list_numeric_columns(log.iterations)
    kinds = [[name for name in names if re.fullmatch(pattern, name)] for pattern in PREFERRED]
    first = [kind[0] for kind in kinds if kind]
    more = [name for kind in kinds for name in kind[1:]] if len(first) < MAX_PANELS else []
    selected = {*[*first, *more][:MAX_PANELS]}
    return [name for kind in kinds for name in kind if name in selected]


def curves(log: Frames, metrics: Sequence[str] | None = None) -> Figure:
    """Draw a panel per metric over the iterations, with a colour per run; by default the metrics of `choose_metrics`.

    Bars are 95 % intervals over an iteration's matches (for valid actions: over turns) if the match log has the metric.
    Metrics are columns of `log.iterations`. Raises KeyError, with the nearest name, for an unknown metric.

    >>> len(curves(log, ["valid_rate", "reward.opener"]).axes)
    2
    """
    frame = log.iterations
    names = choose_metrics(log) if metrics is None else [_require_metric(frame, name) for name in metrics]
    figure, axes = make_sheet(names)
    for axis, name in zip(axes, names, strict=True):
        known_intervals, unknown = intervals(log, name), Interval(np.nan, np.nan, np.nan)
        for run_number, (run, colour) in enumerate(assign_colours(log.readers).items()):
            rows = frame[(frame["run"] == run) & frame[name].notna()]  # panel metrics exist only in some iterations
            numbers, values = rows["iteration"].tolist(), _to_floats(rows[name])
            ends = [known_intervals.get((run, number), unknown)[1:] for number in numbers]
            label = run if len(log.readers) > 1 else ""
            if numbers:
                points = [Interval(v, *end) for v, end in zip(values, ends, strict=True)]
                draw_points(axis, numbers, points, label, colour, run_number)
        _finish_axis(axis, range_of(name, _to_floats(frame[name])))
    add_legend(figure)
    return figure


def plot_comparison(comparison: Comparison) -> Figure:
    """Draw a panel for each of the first `MAX_PANELS` figures of a comparison, with a colour per arm.

    A panel shows each run's curve, each arm's mean curve, and the arm's mean over the last iterations with its
    interval.

    >>> two = analysis.comparison.compare([first, second], last=1, figures=["payoff opener"])
    >>> [axis.get_title() for axis in plot_comparison(two).axes]
    ['payoff opener']
    """
    rows = [row for row in comparison.rows if row.game != ALL_GAMES][:MAX_PANELS]
    palette = assign_colours(arm.label for arm in comparison.arms).values()
    has_several_games = len({row.game for row in rows}) > 1
    titles = [f"{row.game}: {row.figure}" if has_several_games else row.figure for row in rows]
    figure, axes = make_sheet(titles, f"ends: last {comparison.last} iterations, 95 % over {comparison.unit}")
    for axis, row in zip(axes, rows, strict=True):
        matches = comparison.values[comparison.values["game"] == row.game]
        table = matches.groupby(["iteration", "run"])[row.figure].mean().unstack("run").astype("float64")
        for arm_number, (arm, colour) in enumerate(zip(comparison.arms, palette, strict=True)):
            arm_values = table.reindex(columns=list(arm.runs)).dropna(how="all").dropna(axis=1, how="all")
            seeds = arm_values.dropna()
            if len(seeds) < MIN_CURVE_POINTS:
                draw_points(axis, [arm_values.index.max()], [row.means[arm_number]], arm.label, colour, arm_number)
            else:
                draw_curve(
                    axis, seeds.index.tolist(), seeds.to_numpy().T, row.means[arm_number], arm.label, colour, arm_number
                )
        _finish_axis(axis, row.bounds)
    add_legend(figure)
    return figure


def intervals(log: Frames, metric: str) -> dict[tuple[Any, ...], Interval]:
    """Return the mean and 95 % interval of a metric by (run, iteration), from the values of finished matches.

    Returns {} if the metric is not in the match log, which has `valid_rate` (over turns), `mean_payoff` and `report.…`.

    >>> len(intervals(log, "valid_rate"))
    3
    """
    by, finished = ["run", "iteration"], log.complete
    if metric == "valid_rate":
        turns = log.turns.merge(finished[["run", "match"]], on=["run", "match"])
        counts = turns.groupby(by)["valid"].agg(["sum", "size"])
        return {key: rate_ci(int(valid), int(size)) for key, valid, size in counts.itertuples()}
    if metric == "mean_payoff":
        payoffs = log.seats.dropna(subset=["payoff"]).merge(finished[["run", "match"]], on=["run", "match"])
        by_match = payoffs.groupby([*by, "match"])["payoff"].mean()
        return _group_means(by_match.reset_index(), "payoff", by)
    if metric.startswith("report.") and metric in _list_numeric_columns(finished):
        return _group_means(finished.dropna(subset=[metric]), metric, by)
    return {}


def _group_means(rows: pd.DataFrame, name: str, by: list[str]) -> dict[tuple[Any, ...], Interval]:
    """Return the mean and interval of the column `name` for each group of rows with equal values of `by`."""
    bounds = range_of(name, rows[name].tolist())
    return {key: mean_ci(_to_floats(values), bounds) for key, values in rows.groupby(by)[name]}


def _to_floats(values: pd.Series[Any]) -> list[float]:
    return values.astype("float64").tolist()


def _finish_axis(axis: Axes, bounds: Bounds) -> None:
    from matplotlib.ticker import MaxNLocator

    set_y_range(axis, bounds)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def dialogue(log: Frames, match: str) -> str:
    """Return a match as plain text: each turn's speaker, action, texts, reward and advantage, and the outcome.

    Control characters are removed, so the text is safe to print. It contains no markup. Raises StoreError for an id
    that no run has, or that several runs have.

    >>> print(dialogue(log, "0001-0002").splitlines()[0])
    match 0001-0002 of negotiation, iteration 1
    """
    rows = log.matches[log.matches["match"] == match]
    runs = ", ".join(log.readers)
    if rows.empty:
        hint = nearest(match, map(printable, log.matches["match"]))
        raise StoreError(f"{runs} has no match '{printable(match[:64])}'{hint}")
    if len(rows) > 1:
        raise StoreError(f"several of {runs} have a match '{printable(match)}': load one of them")
    head = rows.iloc[0]
    lines = [f"match {printable(match)} of {printable(head['game'])}, iteration {head['iteration']}"]
    for turn in log.turns[log.turns["match"] == match].to_dict("records"):
        lines += _format_turn({str(name): value for name, value in turn.items()})
    payoffs = log.seats[log.seats["match"] == match].dropna(subset=["payoff"])
    return "\n".join([*lines, *_format_ending(head, dict(zip(payoffs["seat"], payoffs["payoff"], strict=True)))])


def _format_turn(turn: Mapping[str, Any]) -> list[str]:
    mark = "" if turn["valid"] else "  (not a valid act)"
    mark += "  (cut at the token limit)" if turn["finish"] == "length" else ""
    lines = [f"{turn['turn'] + 1:>3}  {printable(turn['seat'])}: {printable(turn['action']) or '…'}{mark}"]
    lines += [f"       says    {printable(turn['public'])}"] if turn["public"] else []
    lines += [f"       thinks  {printable(turn['private'])}"] if turn["private"] else []
    parts = {name: value for name, value in turn.items() if name.startswith("reward.") and value}
    rewards_text = ", ".join(f"{printable(name[7:])} {value:+.2f}" for name, value in parts.items())
    credit = "not credited" if pd.isna(turn["advantage"]) else f"advantage {turn['advantage']:+.3f}"
    return [*lines, f"       earned  {turn['reward']:+.2f}{f' ({rewards_text})' if rewards_text else ''}, {credit}"]


def _format_ending(match: pd.Series[Any], payoffs: Mapping[str, float]) -> list[str]:
    if match["status"] != "finished":
        return [f"failed: {printable(match['reason'])}"]
    report = {name[7:]: match[name] for name in match.index if name.startswith("report.") and not pd.isna(match[name])}
    sections = {"payoff": payoffs, "report": report}
    lines = {
        kind: [f"{printable(name)} {_format_value(value)}" for name, value in values.items()]
        for kind, values in sections.items()
    }
    return [f"{kind}: {', '.join(values)}" for kind, values in lines.items() if values]


def _format_value(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else printable(str(value))


def _list_numeric_columns(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name in frame.columns if name != "iteration" and is_numeric(frame[name])]


def _require_metric(frame: pd.DataFrame, name: str) -> str:
    if name not in frame.columns:
        raise KeyError(f"no metric {name!r}{nearest(name, (printable(str(column)) for column in frame.columns))}")
    return name
