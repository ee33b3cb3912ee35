"""The kinds of picture on a run's page: lines over iterations, outcomes of two sides, shares, a map, a small trail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from analysis.page.svg import LETTER, SERIES, Scale, apart, dots, drawn, number, path, short, span, text, ticks, whole
from arena.plain import printable
from arena.statistics import ANY, SHARE, Bounds, Interval

WIDTH, HEIGHT = 360.0, 208.0
LEFT, TOP, BOTTOM = 40.0, 12.0, 28.0
LABEL = 20
"""Letters of a line's label."""
FEW = 5
"""Fewer points than that are no curve: no line joins them."""
MANY = 100
"""More points than that show no numbers under the pointer: the page stays small."""


class Series(NamedTuple):
    """A line: its label at its end, and its points, by iteration."""

    label: str
    points: Sequence[tuple[int, Interval]]


class Level(NamedTuple):
    """A line of theory, the same at every iteration."""

    label: str
    value: float


def lines(name: str, series: Sequence[Series], levels: Sequence[Level] = (), bounds: Bounds = ANY) -> Markup:
    """Each series with its intervals and its label where it ends, and theory's levels dashed."""
    xs = [x for one in series for x, _ in one.points]
    seen = [v for one in series for _, i in one.points for v in i if math.isfinite(v)]
    low, high = (-0.02, 1.02) if bounds == SHARE else span([*seen, *(level.value for level in levels)], 0.12)
    if bounds[0] == 0:
        low = max(low, -0.02 * high) if low < 0 else low
    labels = [short(one.label, LABEL) if len(series) > 1 else "" for one in series]
    right = WIDTH - 12 - max((LETTER * len(label) for label in labels), default=0.0)
    x, y = (
        Scale(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, LEFT + 6, right),
        Scale(low, high, HEIGHT - BOTTOM, TOP),
    )
    parts = [*_grid(x, y, sorted({*xs}))]
    heights = apart([y(level.value) - 4 for level in levels], 12, TOP + 8, HEIGHT - BOTTOM)
    for level, over in zip(levels, heights, strict=True):
        parts += [drawn("level", path([(LEFT, y(level.value)), (right, y(level.value))]), level.label)]
        parts += [text(LEFT + 6, over, f"{level.label} {number(round(level.value, 2))}", "leveltext")]
    ends = [y(one.points[-1][1].estimate) for one in series]
    for place, (one, label, at) in enumerate(
        zip(series, labels, apart(ends, 12, TOP + 4, HEIGHT - BOTTOM), strict=True)
    ):
        colour = f"s{place % SERIES + 1}"
        parts += [*_line(one, x, y, colour), text(right + 8, at + 3.5, label, f"label {colour}")]
    return whole(WIDTH, HEIGHT, f"{name}, by iteration", parts)


def _grid(x: Scale, y: Scale, numbers: Sequence[int]) -> list[Markup]:
    rows = ticks(y.low, y.high)
    parts = [drawn("grid", "".join(f"M{LEFT:g} {y(v):.1f}H{x.end:.1f}" for v in rows))]
    parts += [text(LEFT - 6, y(value) + 3.5, number(value), "tick end") for value in rows]
    for place in sorted({numbers[0], numbers[len(numbers) // 2], numbers[-1]}):
        parts.append(text(x(place), HEIGHT - 10, str(place), "tick middle"))
    return parts


def _line(one: Series, x: Scale, y: Scale, colour: str) -> list[Markup]:
    places = [(x(k), y(i.estimate)) for k, i in one.points]
    sure = [(x(k), y(i.low), y(i.high)) for k, i in one.points if math.isfinite(i.low)]
    parts = []
    if len(places) >= FEW:
        if len(sure) == len(places):
            around = [(a, low) for a, low, _ in sure] + [(a, high) for a, _, high in reversed(sure)]
            parts.append(drawn(f"band {colour}", path(around) + "Z"))
        parts.append(drawn(f"line {colour}", path(places)))
    else:
        parts.append(drawn(f"bar {colour}", "".join(f"M{a:.1f} {low:.1f}V{high:.1f}" for a, low, high in sure)))
    shown = places if len(places) < FEW else places[-1:]
    parts.append(drawn(f"dots {colour}", dots(shown)))
    if len(places) <= MANY:
        parts += [
            drawn("touch", dots([at]), f"{one.label} {k}: {_interval_text(i)}")
            for at, (k, i) in zip(places, one.points, strict=True)
        ]
    return parts


def _interval_text(interval: Interval) -> str:
    known = math.isfinite(interval.low)
    return f"{interval.estimate:.3g}" + (f" [{interval.low:.3g}, {interval.high:.3g}]" if known else "")


def trail(values: Sequence[float]) -> Markup:
    """A figure's way over the iterations, as small as a word."""
    if len(values) < 2:
        return Markup("")
    x, y = Scale(0, len(values) - 1, 3, 77), Scale(*span(values), 17, 3)
    places = [(x(k), y(value)) for k, value in enumerate(values)]
    return Markup('<svg class="trail" viewBox="0 0 80 20" aria-hidden="true">{}{}</svg>').format(
        drawn("line s1", path(places)), drawn("dots s1", dots(places[-1:]))
    )


class Cloud(NamedTuple):
    """Outcomes of one iteration: both sides' payoffs, and the share of its matches that ended so."""

    label: str
    places: Sequence[tuple[float, float, float]]


def outcomes(
    sides: Sequence[str], clouds: Sequence[Cloud], front: Sequence[tuple[float, float]],
    theory: Sequence[tuple[str, float, float]],
) -> Markup:  # fmt: skip
    """Draw what two sides were paid: rings for the first iteration, discs for the last, larger where more ended so."""
    left, bottom, right = 48.0, 44.0, WIDTH - 12
    tall = 280.0
    every = [(a, b) for cloud in clouds for a, b, _ in cloud.places] + [*front] + [(a, b) for _, a, b in theory]
    across, up = span([a for a, _ in every], 0.1), span([b for _, b in every], 0.1)
    x, y = Scale(*across, left, right), Scale(*up, tall - bottom, 12)
    rows, columns = ticks(*up), ticks(*across)
    grid = "".join(f"M{left:g} {y(v):.1f}H{x.end:.1f}" for v in rows) + "".join(
        f"M{x(v):.1f} 12V{y.start:.1f}" for v in columns
    )
    parts = [drawn("grid", grid), drawn("front", path((x(a), y(b)) for a, b in front))]
    parts += [text(left - 6, y(v) + 3.5, number(v), "tick end") for v in rows]
    parts += [text(x(v), y.start + 15, number(v), "tick middle") for v in columns]
    for kind, cloud in zip(("ring", "disc") if len(clouds) > 1 else ("disc",), clouds, strict=True):
        for a, b, share in cloud.places:
            parts.append(
                Markup('<circle class="{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
                    kind, f"{x(a):.1f}", f"{y(b):.1f}", f"{3 + 16 * math.sqrt(share):.1f}",
                    printable(f"{cloud.label}: {a:g} and {b:g}, {share:.0%} of the matches"),
                )
            )  # fmt: skip
    heights = apart([y(b) for _, _, b in theory], 13, 20, y.start)
    for (label, a, b), at in zip(theory, heights, strict=True):
        parts.append(drawn("cross", f"M{x(a) - 4:.1f} {y(b):.1f}h8M{x(a):.1f} {y(b) - 4:.1f}v8", label))
        ends = x(a) > right - 12 - LETTER * len(label)
        parts.append(text(x(a) + (-8 if ends else 8), at - 3, label, "leveltext end" if ends else "leveltext"))
    parts.append(text((left + right) / 2, tall - 10, f"payoff of {short(sides[0], 30)}", "label middle"))
    parts.append(
        Markup('<text class="label middle" transform="translate(12 {}) rotate(-90)">{}</text>').format(
            f"{(tall - bottom) / 2:g}", printable(f"payoff of {short(sides[1], 30)}")
        )
    )
    return whole(WIDTH, tall, "what both sides were paid", parts)


def shares(numbers: Sequence[int], columns: Sequence[Sequence[float]]) -> Markup:
    """Shares of each iteration that add up to one, one over the other."""
    ks = [numbers[0] - 0.5, numbers[0] + 0.5] if len(numbers) == 1 else [*numbers]
    x, y = Scale(ks[0], ks[-1], LEFT, WIDTH - 12), Scale(0, 1, HEIGHT - BOTTOM, TOP)
    parts, below = [], np.zeros(len(ks))
    for place, column in enumerate(columns):
        above = below + np.asarray([*column] * (2 if len(numbers) == 1 else 1), dtype=float)
        around = [(x(k), y(v)) for k, v in zip(ks, above, strict=True)]
        around += [(x(k), y(v)) for k, v in zip(ks[::-1], below[::-1], strict=True)]
        parts.append(drawn(f"area s{place % SERIES + 1}", path(around) + "Z"))
        below = above
    return whole(WIDTH, HEIGHT, "share of each kind of match, by iteration", [*_grid(x, y, numbers), *parts])


def cloud(places: Sequence[tuple[float, float, int]]) -> Markup:
    """A dot for each text, near those that are like it, in the colour of its kind."""
    x = Scale(*span([a for a, _, _ in places]), 8, WIDTH - 8)
    y = Scale(*span([b for _, b, _ in places]), HEIGHT - 8, 8)
    kinds = sorted({kind for _, _, kind in places})
    own = {kind: [(x(a), y(b)) for a, b, of in places if of == kind] for kind in kinds}
    parts = [
        drawn(f"specks s{kind % SERIES + 1}", dots(dict.fromkeys((round(a), round(b)) for a, b in own[kind])))
        for kind in kinds
    ]
    return whole(WIDTH, HEIGHT, "matches, the closer the more alike", parts)
