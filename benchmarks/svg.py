"""Scales, ticks and paths for small SVG pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from arena.plain import printable


class Scale(NamedTuple):
    """Linear map from values to positions along one side of a picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def round_ticks(low: float, high: float, max_count: int = 5) -> list[float]:
    """Return at most `max_count` round numbers within a range.

    >>> round_ticks(0.0, 1.0), round_ticks(-0.2, 7.4)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 2.0, 4.0, 6.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / max_count))
    for factor in (1, 2, 2.5, 5, 10, 20):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < max_count:
            return [round(k * step, 12) for k in range(first, last + 1)]
    return []


def path_data(points: Iterable[tuple[float, float]]) -> str:
    """Return the `d` attribute of an SVG path through the points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def draw_path(css_class: str, data: str, tooltip: str = "") -> Markup:
    """Return an SVG path element with a CSS class and an optional tooltip."""
    inner = Markup("<title>{}</title>").format(printable(tooltip)) if tooltip else ""
    return Markup('<path class="{}" d="{}">{}</path>').format(css_class, data, inner)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return the positions moved apart by at least `gap`, within the range and in the same order.

    >>> spread([10, 11, 30], 5, 0, 40)
    [10, 15, 30]
    """
    order = sorted(range(len(positions)), key=lambda k: positions[k])
    placed = [float(position) for position in positions]
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + gap)
    limit = high
    for k in reversed(order):
        placed[k] = min(placed[k], limit)
        limit = placed[k] - gap
    return [
        int(position) if position == int(position) else position
        for position in (max(low, position) for position in placed)
    ]
