"""Common parts of matplotlib figures: panels, error bars, and labels that fit. Colours are in `arena.store.plots`.

A curve shows each seed (thin), the seeds' mean (thick) and, at its right end, a dot with the interval of the final
value. It has no band, which would be wide and jumpy with few seeds. Fewer than `MIN_CURVE_POINTS` points are drawn as
dots with error bars, without a line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.plain import printable
from arena.statistics import SHARE, Bounds, Interval
from arena.store.plots import draw_seeds, escape_tex

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 8
"""Maximum number of panels in a figure."""
MIN_CURVE_POINTS = 5
WIDTH, HEIGHT = 3.4, 2.7
"""Size of a panel in inches."""


def make_sheet(
    titles: Sequence[str], heading: str = "", x_label: str = "iteration", height: float = HEIGHT
) -> tuple[Figure, list[Axes]]:
    """Create a matplotlib figure with one panel per title. Returns the figure and the panels' axes.

    `heading` is the figure's title, `x_label` the label of the x axes, and `height` a panel's height in inches. The
    figure is not registered with pyplot, so no window opens.
    """
    from matplotlib.figure import Figure

    count = max(len(titles), 1)
    columns = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3}.get(count, 4)
    rows = -(-count // columns)
    width = max(WIDTH * columns, 5.5)
    figure = Figure(figsize=(width, height * rows + 0.7), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.1, h_pad=0.08)
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(len(titles))]
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(wrap_label(title, int(11 * width / columns)), fontsize=10)
        axis.grid(alpha=0.3)
        axis.set_xlabel(x_label, fontsize=9)
        axis.tick_params(labelsize=8)
    if heading:
        figure.suptitle(wrap_label(heading, int(11 * width)), fontsize=10)
    return figure, axes


def wrap_label(name: str, width: int) -> str:
    """Wrap a name to at most two lines of `width` characters for matplotlib, and cut the rest.

    Leading underscores, which would hide a label, are removed, and TeX is disabled.
    """
    lines = textwrap.wrap(printable(name).lstrip("_"), width, max_lines=2, placeholder=" …") or [""]
    return escape_tex("\n".join(lines))


def set_y_range(axis: Axes, bounds: Bounds) -> None:
    """Set the y range of a panel: [0, 1] for a share, from 0 for other figures without negative values."""
    if bounds == SHARE:
        axis.set_ylim(-0.02, 1.02)
    elif bounds[0] == 0:
        axis.set_ylim(0, 1.05 * axis.get_ylim()[1])


def add_legend(figure: Figure, label_width: int = 30) -> None:
    """Add a common legend below the panels, if any panel has labels."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        labels = _make_distinct([wrap_label(label, label_width) for label in handles])
        max_columns = figure.get_figwidth() * 12 / (max(len(line) for text in labels for line in text.split("\n")) + 6)
        columns = max(1, min(len(handles), int(max_columns)))
        figure.legend(
            list(handles.values()), labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )


def _make_distinct(texts: Sequence[str]) -> list[str]:
    """Return a distinct label per text: its first line, both lines if that repeats, with a number if both repeat."""
    first = [text.partition("\n")[0] for text in texts]
    labels = [text if first.count(line) > 1 else line for text, line in zip(texts, first, strict=True)]
    return [f"{text} ({number})" if labels.count(text) > 1 else text for number, text in enumerate(labels, 1)]


def visible_label(label: str) -> str:
    """Return the label, with a space before a leading underscore: matplotlib hides labels that start with one."""
    return f" {label}" if label.startswith("_") else label


def draw_points(
    axis: Axes, x: Sequence[float], intervals: Sequence[Interval], label: str, colour: str, shift: int = 0
) -> None:
    """Draw dots with error bars. A different `shift` to the right for each run keeps them from overlapping.

    `MIN_CURVE_POINTS` or more dots are joined by a line. `label` is the legend's.
    """
    middle, low, high = (np.array(column) for column in zip(*intervals, strict=True))
    x_offset = 0.012 * shift * (max(x) - min(x) or 1)
    errors = np.nan_to_num([np.maximum(middle - low, 0), np.maximum(high - middle, 0)])
    axis.errorbar(
        np.array(x) + x_offset, middle, errors, fmt="o-" if len(x) >= MIN_CURVE_POINTS else "o", color=colour,
        label=visible_label(label), capsize=2, markersize=3.5, linewidth=1.2,
    )  # fmt: skip


def draw_curve(
    axis: Axes, x: Sequence[float], seeds: Any, final: Interval, label: str, colour: str,
    shift: int = 0,
) -> None:  # fmt: skip
    """Draw a group of runs: each run's values (a row of `seeds`), their mean, and a dot with the interval `final`."""
    draw_seeds(axis, x, np.asarray(seeds, dtype=float).tolist(), visible_label(label), colour)
    draw_points(axis, [max(x) + (0.03 + 0.02 * shift) * (max(x) - min(x))], [final], "", colour)
