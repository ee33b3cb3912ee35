"""Checks that the texts of a figure are legible: inside it, and overlapping no other text or panel."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def find_overlaps(figure: Any, slack: float = 1.0) -> list[str]:
    """Return one line per illegible text of the drawn figure; `slack` is in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [text for text in _iterate_texts(figure) if text.get_visible() and text.get_text().strip()]
    boxes = {t: t.get_window_extent(renderer).padded(-slack) for t in texts}
    picture, overlaps = figure.bbox, []
    for text, box in boxes.items():
        if box.x0 < picture.x0 or box.y0 < picture.y0 or box.x1 > picture.x1 or box.y1 > picture.y1:
            overlaps.append(f"{text.get_text()!r} leaves the picture")
        for axis in figure.axes:
            if (
                not text.get_rotation() % 90
                and text.axes is not axis
                and box.overlaps(axis.get_window_extent(renderer))
            ):
                overlaps.append(f"{text.get_text()!r} lies over the panel {axis.get_title()!r}")
    for first, second in combinations(texts, 2):
        is_rotated = first.get_rotation() % 90 or second.get_rotation() % 90  # whose bounding boxes are too large
        if not is_rotated and boxes[first].overlaps(boxes[second]):
            overlaps.append(f"{first.get_text()!r} lies over {second.get_text()!r}")
    return overlaps


def _iterate_texts(figure: Any) -> Iterator[Text]:
    """Yield the drawn texts; tick labels beyond an axis' ends exist but are not drawn."""
    yield from figure.texts
    for legend in (*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())):
        yield from legend.get_texts()
    for panel in figure.axes:
        yield from (panel.title, panel.xaxis.label, panel.yaxis.label, *panel.texts)
        for axis in (panel.xaxis, panel.yaxis):
            low, high = sorted(axis.get_view_interval())
            margin = 1e-9 * (high - low)
            for position, label in zip(
                axis.get_ticklocs(), axis.get_ticklabels(), strict=False
            ):  # none where they are shared
                if low - margin <= position <= high + margin:
                    yield label


def find_sparse_lines(figure: Any, minimum: int = 3) -> list[str]:
    """Return the panels with a line through fewer than `minimum` points; `axhline` does not count."""
    return [
        axis.get_title()
        for axis in figure.axes
        for line in axis.lines
        if line.get_linestyle() != "None"
        and 1 < len(line.get_xdata()) < minimum
        and line.get_transform() is not axis.get_yaxis_transform("grid")
    ]
