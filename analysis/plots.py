"""Pictures of runs, drawn with matplotlib (the `analysis` extra), and a match as a readable dialogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.frames import Run
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import mean_ci

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curves(run: Run, metrics: Sequence[str] | None = None) -> Figure:
    """One panel per numeric metric, or per named one, over the iterations; KeyError for an unknown one."""
    frame = run.iterations
    names = _numeric(frame) if metrics is None else list(metrics)
    figure, axes = _panels(len(names))
    for axis, name in zip(axes, names, strict=True):
        axis.plot(frame["iteration"], frame[_known(frame, name)].astype(float), marker=".")
        axis.set(title=_text(name), xlabel="iteration")
    return figure


def compare(runs: Mapping[str, Sequence[Run]], metric: str) -> Figure:
    """One metric for several kinds of runs: mean over seeds and its 95 % Student-t band, where n >= 2.

    `runs` maps a label to that label's runs, one per seed; KeyError when a run lacks the metric.
    """
    figure, (axis,) = _panels(1)
    for label, seeds in runs.items():
        columns = [run.iterations.set_index("iteration")[_known(run.iterations, metric)] for run in seeds]
        table = pd.concat(columns, axis=1).astype(float)
        bands = [mean_ci(row[np.isfinite(row)].tolist()) for row in table.to_numpy()]
        (line,) = axis.plot(table.index, [b.estimate for b in bands], marker=".", label=_text(label))
        ends = [b.low for b in bands], [b.high for b in bands]
        axis.fill_between(table.index, *ends, alpha=0.2, color=line.get_color(), linewidth=0)
    axis.set(title=_text(metric), xlabel="iteration")
    axis.legend()
    return figure


def payoffs(run: Run) -> Figure:
    """Mean payoff of every seat in the finished matches of each iteration, with 95 % Student-t intervals."""
    finished = run.matches[run.matches["status"] == "finished"]
    figure, (axis,) = _panels(1)
    for name in [column for column in finished.columns if column.startswith("payoff.")]:
        known = finished.dropna(subset=[name])
        numbers = sorted(known["iteration"].unique())
        means = [mean_ci(known.loc[known["iteration"] == number, name].tolist()) for number in numbers]
        half = np.nan_to_num([interval.high - interval.estimate for interval in means])
        middle = [interval.estimate for interval in means]
        axis.errorbar(numbers, middle, yerr=half, marker="o", capsize=3, label=_text(name[7:]))
    axis.set(title="payoff by seat", xlabel="iteration")
    if axis.lines:
        axis.legend()
    return figure


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


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes, three to a row, that no window or global state knows of."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    columns = min(max(count, 1), 3)
    rows = -(-max(count, 1) // columns)
    figure = Figure(figsize=(max(4.0 * columns, 6.0), 3.0 * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for axis in axes:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def _numeric(frame: pd.DataFrame) -> list[str]:
    numbers = frame.select_dtypes(include=["number", "boolean"]).columns
    return [str(name) for name in numbers if name != "iteration"]


def _known(frame: pd.DataFrame, name: str) -> str:
    if name not in frame.columns:
        near = get_close_matches(name, [str(column) for column in frame.columns], n=1)
        raise KeyError(f"no metric {name!r}" + (f" — did you mean {near[0]!r}?" if near else ""))
    return name


def _text(name: str) -> str:
    """The name as matplotlib shows it literally: no TeX between dollars, no label hidden by an underscore."""
    return printable(name).replace("$", r"\$").removeprefix("_")
