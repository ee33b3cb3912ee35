"""Charts of a run for the viewer: one per kind of metric, with a line per role, policy or opponent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

from analysis import plots
from analysis.frames import Frames, is_numeric
from analysis.view.formatting import sanitize
from analysis.view.learned import best_response, values_by_deal
from analysis.view.metric_names import THEORY, name_figure
from arena.errors import StoreError
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, range_of
from arena.store.evaluations import Evaluation

MIN_MOVE = 0.02
"""Range of a share below which it counts as unchanged."""
MAX_LINES = 6
"""Maximum number of lines in a chart; those with the most values are kept."""
KINDS: Mapping[str, str] = {
    "Valid acts of all turns": r"valid_rate",
    "Success": r"report\.(?:(?!ended)\w+\.)?(success|solved|won|correct|deal|trade)",
    "Payoff by seat": r"payoff\.(.+)",
    "Reward by role": r"reward\.(.+)",
    "Share of the best joint value": r"report\.(?:\w+\.)?(efficiency)",
    "Joint value": r"report\.(?:\w+\.)?(joint_value)",
    "Wins against": r"win_rate\.(.+)",
    "How matches ended": r"report\.(?:\w+\.)?ended\.(.+)",
    "Turns in a match": r"report\.(?:(?!ended)\w+\.)?(turns)",
    "Randomness of the acts (entropy)": r"learn\.(.+)\.entropy",
    "Distance from the reference (KL)": r"learn\.(.+)\.kl",
    "Share of tokens clipped": r"learn\.(.+)\.clipped",
    "Ratings": r"ratings\.(.+)",
    "Matches that failed": r"failed_rate",
    "Tokens per second": r"tokens_per_second",
}
"""Charts in the order of the page: title, and the pattern of their metrics. The group becomes the line's label."""


class Series(NamedTuple):
    """Line of a chart: its label and points. A point is x (usually the iteration) and a value with its interval."""

    label: str
    points: Sequence[tuple[float, Interval]]


class Level(NamedTuple):
    """Theory value of a chart, drawn as a horizontal line with its label."""

    label: str
    value: float


class Mark(NamedTuple):
    """Position on a chart's x axis, drawn as a vertical line with its label."""

    label: str
    x: float


class Curve(NamedTuple):
    """Chart: lines (`series`), theory values (`levels`), their metrics (`keys`) and the y range (`bounds`).

    `still` is True for shares that all change by less than `MIN_MOVE`. `along` is the x axis's label; "" stands for the
    iteration. With `own_scales`, each of two lines has a separate y axis.
    """

    title: str
    keys: tuple[str, ...]
    series: list[Series]
    levels: list[Level]
    bounds: Bounds
    note: str = ""
    still: bool = False
    along: str = ""
    marks: tuple[Mark, ...] = ()
    own_scales: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the chart as JSON values: the fields, each point as [iteration, value, low, high], and `words`.

        `words` are the metrics' names in words, in the order of `keys`.
        """
        return {
            "title": self.title, "keys": self.keys, "words": [name_figure(key).words for key in self.keys],
            "bounds": self.bounds, "note": self.note, "still": self.still,
            "series": [{"label": s.label, "points": [[k, *i] for k, i in s.points]} for s in self.series],
            "levels": [level._asdict() for level in self.levels],
            "along": self.along, "marks": [mark._asdict() for mark in self.marks], "own_scales": self.own_scales,
        }  # fmt: skip


IntervalsOf = Callable[[str], Mapping[int, Interval]]
"""Function that returns a metric's intervals by iteration, empty if they are unknown."""


def make_charts(
    frame: pd.DataFrame,
    known_intervals: IntervalsOf,
    levels: Callable[[Mapping[str, Any]], Iterable[Level]],
    is_zero_sum: bool = False,
) -> Iterator[Curve]:
    """Yield a chart for each kind in `KINDS` with a varying metric in `frame`, the table of metrics by iteration.

    `known_intervals` returns a metric's intervals, `levels` the theory values of metrics. With `is_zero_sum`, rewards
    of a single role are not charted, because they cancel.
    """
    for title, pattern in KINDS.items():
        keys = {
            str(key): m for key in frame.columns if (m := re.fullmatch(pattern, str(key))) and is_numeric(frame[key])
        }
        keys = {key: m for key, m in keys.items() if frame[key].round(9).nunique() > 1}
        if not keys or (is_zero_sum and title == "Reward by role" and len(keys) == 1):
            continue
        shown_keys = sorted(keys, key=lambda key: -len(frame[key].dropna()))[:MAX_LINES]
        series = [
            Series(_make_label(keys[key], key), _make_points(frame, key, known_intervals))
            for key in keys
            if key in shown_keys
        ]
        values = [float(value) for key in shown_keys for value in frame[key].dropna()]
        bounds = range_of(next(iter(keys)), values)
        words = name_figure(shown_keys[0]).words
        heading = words[0].upper() + words[1:] if title == "Success" and len(keys) == 1 else title
        note = f"the {MAX_LINES} most frequent of {len(keys)}" if len(keys) > MAX_LINES else ""
        is_constant = bounds == SHARE and all(
            float(frame[key].max() - frame[key].min()) < MIN_MOVE for key in shown_keys
        )
        yield Curve(heading, tuple(shown_keys), series, [*levels(keys)], bounds, note, is_constant)


def _make_label(match: re.Match[str], key: str) -> str:
    return (match[1] if match.groups() else "").removeprefix("shared vs ").replace("_", " ")


def _make_points(frame: pd.DataFrame, key: str, intervals: IntervalsOf) -> list[tuple[int, Interval]]:
    """Return a metric's points: (iteration, value with interval). Unknown interval ends are NaN."""
    known_intervals, rows = intervals(key), frame[["iteration", key]].dropna()
    values = zip(rows["iteration"].tolist(), rows[key].astype("float64").tolist(), strict=True)
    points = [(int(k), value, known_intervals.get(int(k))) for k, value in values if math.isfinite(value)]
    return [(k, Interval(v, *(i[1:] if i else (math.nan, math.nan)))) for k, v, i in points]


def intervals(log: Frames, key: str) -> dict[int, Interval]:
    """Return a metric's mean over matches with its 95 % interval, by iteration; empty if the match log lacks it."""
    if key.startswith("payoff."):
        known_payoffs = log.seats[log.seats["seat"] == key.removeprefix("payoff.")].dropna(subset=["payoff"])
        known_payoffs = known_payoffs.merge(log.complete[["run", "match"]], on=["run", "match"])
        rows = known_payoffs.groupby("iteration")["payoff"].agg(list).to_dict()
        return {int(str(k)): mean_ci([float(value) for value in payoffs], ANY) for k, payoffs in rows.items()}
    if key.startswith("reward."):
        return _reward_intervals(log, key.removeprefix("reward."))
    return {int(k): interval for (_, k), interval in plots.intervals(log, key).items()}


def _reward_intervals(log: Frames, role: str) -> dict[int, Interval]:
    """Return a trained role's mean total reward per match and seat, with its interval, by iteration.

    Leaves out branches.
    """
    matches = log.complete[log.complete["parent"] == ""]
    learners = log.seats[log.seats["trained"] & (log.seats["role"] == role)].merge(matches[["run", "match"]])
    turns = log.turns.merge(learners[["run", "match", "seat"]], on=["run", "match", "seat"])
    totals = turns.groupby(["iteration", "match", "seat"])["reward"].sum().astype("float64")
    return {int(str(k)): mean_ci(role_totals.tolist(), ANY) for k, role_totals in totals.groupby("iteration")}


def find_levels(log: Frames, keys: Mapping[str, Any], theory: Mapping[str, float]) -> Iterator[Level]:
    """Yield the values of `theory` (by name) that apply to one of the metrics `keys`.

    If payoffs are among the metrics, also yields the Nash bargain's mean payoff over seats and matches, if logged.
    """
    seats = [str(seat) for seat in log.seats["seat"].unique()]
    for name, value in theory.items():
        metric, words = THEORY.get(name, ("", ""))
        metric = metric.replace("FIRST", seats[0] if seats else "")
        if metric and any(key == metric or key.startswith(f"{metric}.") for key in keys):
            yield Level(words, value)
    if any(key.startswith("payoff.") for key in keys):
        columns = [c for c in map(str, log.matches.columns) if re.fullmatch(r"report\.nash_payoff_\w+", c)]
        nash_payoffs = [log.matches[column].dropna().astype("float64") for column in columns]
        if nash_payoffs and all(len(payoffs) for payoffs in nash_payoffs):
            yield Level("Nash bargain, mean", float(pd.concat(nash_payoffs).mean()))


def make_panel_charts(evaluations: Sequence[Evaluation]) -> Iterator[Curve]:
    """Yield the chart of the payoff against the panel by iteration, or nothing for fewer than two evaluations.

    The best response's payoff is drawn as a level, if known.
    """
    points = []
    for evaluation in evaluations:
        values = [value for value in values_by_deal(evaluation, "payoff") if value is not None]
        if values and evaluation.iteration is not None:
            points.append((evaluation.iteration, mean_ci(values, ANY)))
    best = best_response(evaluations)
    levels = [] if best is None else [Level("best response", best)]
    if len(evaluations) > 1:
        note = f"the same {evaluations[-1].deals} deals each time"
        yield Curve("Payoff against the panel", ("panel.payoff",), [Series("", points)], levels, ANY, note)


def outcomes(log: Frames) -> dict[str, Any] | None:
    """Return both sides' payoffs in the first and last iteration; None unless two sides were paid.

    `sides` has the sides' names, `clouds` the pairs of payoffs in each of the two iterations with their share of
    matches, `front` the Pareto front, and `theory` the mean payoffs of the theoretical solutions.
    """
    with suppress(StoreError):
        side_payoffs, theory = find_sides(log)
        first, last = int(side_payoffs["iteration"].min()), int(side_payoffs["iteration"].max())
        clouds = []
        for number in dict.fromkeys([first, last]):
            counts = side_payoffs[side_payoffs["iteration"] == number].groupby(["x", "y"]).size().reset_index()
            rows = counts.astype("float64").to_numpy().tolist()
            total = sum(row[2] for row in rows)
            clouds.append({"iteration": number, "places": [[x, y, n / total] for x, y, n in rows]})
        front = pareto_front(side_payoffs[["x", "y"]].astype("float64").to_numpy().tolist())
        marks = [[f"{name.replace('_', ' ')}, mean", *payoffs] for name, payoffs in theory.items()]
        sides = [sanitize(side) for side in side_payoffs.attrs["sides"]]
        return {"sides": sides, "clouds": clouds, "front": front, "theory": marks}
    return None


def pareto_front(outcomes: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return the Pareto-optimal pairs of payoffs, without repeats and sorted by the first payoff.

    No other pair is better for one side without being worse for the other.

    >>> pareto_front([(1, 4), (2, 2), (3, 3), (1, 1), (3, 3), (2, 4)])
    [(2.0, 4.0), (3.0, 3.0)]
    """
    front: list[tuple[float, float]] = []
    for x, y in sorted({(float(x), float(y)) for x, y in outcomes}, reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def find_sides(log: Frames) -> tuple[pd.DataFrame, dict[str, tuple[float, float]]]:
    """Return a frame with iteration and both payoffs (x, y) per paid match, and theoretical mean payoffs by name.

    The sides are the game report's, such as first and second mover, or without these the seats. The frame's
    `attrs["sides"]` names them. Raises StoreError unless two sides were paid in some match.

    >>> find_sides(log)[0].attrs["sides"]
    ['opener', 'responder']
    """
    matches = log.matches
    names = [str(name) for name in matches]
    columns_by_side = {match[1]: name for name in names if (match := re.fullmatch(r"report\.payoff_(\w+)", name))}
    if len(columns_by_side) == 2:
        sides, theory = list(columns_by_side), {}
        paid = matches[["iteration", *columns_by_side.values()]].dropna().set_axis(["iteration", "x", "y"], axis=1)
        for name in dict.fromkeys(m[1] for c in names if (m := re.fullmatch(r"report\.(\w+?)_payoff_\w+", c))):
            columns = [f"report.{name}_payoff_{side}" for side in sides]
            if {*columns} <= {*names} and len(side_payoffs := matches[columns].dropna()):
                theory[name] = (float(side_payoffs[columns[0]].mean()), float(side_payoffs[columns[1]].mean()))
    else:
        seats = log.seats.dropna(subset=["payoff"])
        payoffs, theory = seats.pivot(index=["run", "match", "iteration"], columns="seat", values="payoff"), {}
        sides = [str(seat) for seat in payoffs.columns]
        if len(sides) == 2:
            paid = payoffs.dropna().set_axis(["x", "y"], axis=1).reset_index()
    if len(sides) != 2:
        raise StoreError(f"a chart of outcomes needs two sides, not {len(sides)}")
    if paid.empty:
        raise StoreError("no match has paid both sides yet")
    paid.attrs["sides"] = sides
    return paid, theory
