"""Whether the texts of a picture can be read: inside of it, over no other text, over no other panel."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def find_overlaps(figure: Any, slack: float = 1.0) -> list[str]:
    """What cannot be read, as it is drawn; `slack` in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [text for text in _iterate_texts(figure) if text.get_visible() and text.get_text().strip()]
    boxes = {t: t.get_window_extent(renderer).padded(-slack) for t in texts}
    whole, found = figure.bbox, []
    for text, box in boxes.items():
        if box.x0 < whole.x0 or box.y0 < whole.y0 or box.x1 > whole.x1 or box.y1 > whole.y1:
            found.append(f"{text.get_text()!r} leaves the picture")
        for axis in figure.axes:
            if (
                not text.get_rotation() % 90
                and text.axes is not axis
                and box.overlaps(axis.get_window_extent(renderer))
            ):
                found.append(f"{text.get_text()!r} lies over the panel {axis.get_title()!r}")
    for one, other in combinations(texts, 2):
        askew = one.get_rotation() % 90 or other.get_rotation() % 90  # whose boxes hold more than they
        if not askew and boxes[one].overlaps(boxes[other]):
            found.append(f"{one.get_text()!r} lies over {other.get_text()!r}")
    return found


def _iterate_texts(figure: Any) -> Iterator[Text]:
    """All texts but the labels of ticks beyond an axis' ends, which matplotlib keeps and does not draw."""
    yield from figure.texts
    for legend in (*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())):
        yield from legend.get_texts()
    for panel in figure.axes:
        yield from (panel.title, panel.xaxis.label, panel.yaxis.label, *panel.texts)
        for axis in (panel.xaxis, panel.yaxis):
            low, high = sorted(axis.get_view_interval())
            margin = 1e-9 * (high - low)
            for at, label in zip(
                axis.get_ticklocs(), axis.get_ticklabels(), strict=False
            ):  # none where they are shared
                if low - margin <= at <= high + margin:
                    yield label


def find_sparse_lines(figure: Any, few: int = 3) -> list[str]:
    """Panels in which a line is drawn through fewer than so many points; `axhline` draws through none."""
    return [
        axis.get_title()
        for axis in figure.axes
        for line in axis.lines
        if line.get_linestyle() != "None"
        and 1 < len(line.get_xdata()) < few
        and line.get_transform() is not axis.get_yaxis_transform("grid")
    ]
