"""Small pictures as SVG that take the page's colours: classes in place of styles, text as text.

A page's policy (CSP) allows no style within an element, so that shape is in attributes and colour in the page's style
sheet. Every text loses control and bidi characters and goes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from arena.plain import printable

SERIES = 6
"""Line colours, each with a dash of its own."""
LETTER = 6.1
"""Mean width of a letter at the size of a picture's texts, in its units."""


class Scale(NamedTuple):
    """From values to places along one side of a picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value is drawn."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def span(values: Iterable[float], pad: float = 0.06) -> tuple[float, float]:
    """The range of an axis for these values: a little more than they take; of one value, a unit around it."""
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        room = max(abs(high) * 0.5, 0.5)
        return low - room, high + room
    return low - pad * (high - low), high + pad * (high - low)


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


def number(value: float) -> str:
    """A number on an axis, short.

    >>> number(2.0), number(0.25), number(-0.0), number(12345.0), number(2.5e-7)
    ('2', '0.25', '0', '12,345', '2.5e-07')
    """
    if value and abs(value) < 1e-3:
        return f"{value:.2g}"
    text = f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:,.0f}"
    return "0" if text in ("-0", "") else text.replace("-", "\N{MINUS SIGN}")


def path(points: Iterable[tuple[float, float]]) -> str:
    """Path data through these places."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def dots(points: Iterable[tuple[float, float]]) -> str:
    """Path data of lines of no length, which round ends make dots."""
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)


def drawn(kind: str, data: str, told: str = "") -> Markup:
    """A path of a class; `told` is what a pointer over it shows."""
    inner = Markup("<title>{}</title>").format(printable(told)) if told else ""
    return Markup('<path class="{}" d="{}">{}</path>').format(kind, data, inner)


def text(x: float, y: float, words: str, kind: str = "") -> Markup:
    """A text that begins (or, by its class, ends) here."""
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(
        f"{x:.1f}", f"{y:.1f}", kind or "tick", printable(words)
    )


def short(words: str, most: int) -> str:
    """At most so many letters."""
    return words if len(words) <= most else f"{words[: most - 1]}…"


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


def whole(width: float, height: float, label: str, parts: Iterable[Markup], kind: str = "chart") -> Markup:
    """The picture, as wide as its place; `label` is what a screen reader says."""
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        kind, f"{width:g}", f"{height:g}", printable(label), Markup("").join(parts)
    )
