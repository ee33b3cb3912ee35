"""Parts of small pictures as SVG: places along a side, round numbers, paths of a class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from arena.plain import printable


class Scale(NamedTuple):
    """From values to places along one side of a picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value is drawn."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within a range, `most` or fewer.

    >>> ticks(0.0, 1.0), ticks(-0.2, 7.4)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 2.0, 4.0, 6.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 2.5, 5, 10, 20):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [round(k * step, 12) for k in range(first, last + 1)]
    return []


def path(points: Iterable[tuple[float, float]]) -> str:
    """Path data through these places."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def drawn(kind: str, data: str, told: str = "") -> Markup:
    """A path of a class; `told` is what a pointer over it shows."""
    inner = Markup("<title>{}</title>").format(printable(told)) if told else ""
    return Markup('<path class="{}" d="{}">{}</path>').format(kind, data, inner)


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The same places, in their order, moved so that each is at least a gap from the next, and within the range.

    >>> apart([10, 11, 30], 5, 0, 40)
    [10, 15, 30]
    """
    order = sorted(range(len(places)), key=lambda k: places[k])
    moved = [float(place) for place in places]
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    over = high
    for k in reversed(order):
        moved[k] = min(moved[k], over)
        over = moved[k] - gap
    return [int(place) if place == int(place) else place for place in (max(low, place) for place in moved)]
