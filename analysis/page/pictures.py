"""The pictures of a run: a chart for each kind of figure with a line for every role, policy and opponent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

from analysis import plots
from analysis.frames import Frames, numeric
from analysis.page.learned import best_response, by_deal
from analysis.page.names import THEORY, named
from analysis.page.texts import harmless
from arena.errors import StoreError
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, range_of
from arena.store.evaluations import Evaluation

STILL = 0.02
MOST = 6
"""Lines in a chart: those of most matches, where there are more."""
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
    "Tokens a second": r"tokens_per_second",
}
"""The title of each chart, in the order of the page, and the keys of its lines with what tells them apart."""


class Series(NamedTuple):
    """A line: what tells it from the others, and its points, by iteration."""

    label: str
    points: Sequence[tuple[int, Interval]]


class Level(NamedTuple):
    """A line of theory, the same at every iteration."""

    label: str
    value: float


class Curve(NamedTuple):
    """The lines of a chart, and whether hardly anything moves in it."""

    title: str
    keys: tuple[str, ...]
    series: list[Series]
    levels: list[Level]
    bounds: Bounds
    note: str = ""
    still: bool = False

    def as_json(self) -> dict[str, Any]:
        """The chart as the page draws it, its points as [iteration, value, low, high]."""
        return {
            "title": self.title, "keys": self.keys, "words": [named(key).words for key in self.keys],
            "bounds": self.bounds, "note": self.note, "still": self.still,
            "series": [{"label": s.label, "points": [[k, *i] for k, i in s.points]} for s in self.series],
            "levels": [level._asdict() for level in self.levels],
        }  # fmt: skip


Known = Callable[[str], Mapping[int, Interval]]
"""From a metric to its intervals by iteration, as far as they are known."""


def lines_of(
    frame: pd.DataFrame, known: Known, levels: Callable[[Mapping[str, Any]], Iterable[Level]], nothing_won: bool = False
) -> Iterator[Curve]:
    """The charts of a table of metrics, in the order of `KINDS`; those without a line are left out."""
    for title, pattern in KINDS.items():
        keys = {str(key): m for key in frame.columns if (m := re.fullmatch(pattern, str(key))) and numeric(frame[key])}
        keys = {key: m for key, m in keys.items() if frame[key].round(9).nunique() > 1}
        if not keys or (nothing_won and title == "Reward by role" and len(keys) == 1):
            continue
        most = sorted(keys, key=lambda key: -len(frame[key].dropna()))[:MOST]
        series = [Series(_label(keys[key], key), _points(frame, key, known)) for key in keys if key in most]
        seen = [float(value) for key in most for value in frame[key].dropna()]
        bounds = range_of(next(iter(keys)), seen)
        words = named(most[0]).words
        heading = words[0].upper() + words[1:] if title == "Success" and len(keys) == 1 else title
        left_out = f"the {MOST} most frequent of {len(keys)}" if len(keys) > MOST else ""
        still = bounds == SHARE and all(float(frame[key].max() - frame[key].min()) < STILL for key in most)
        yield Curve(heading, tuple(most), series, [*levels(keys)], bounds, left_out, still)


def _label(caught: re.Match[str], key: str) -> str:
    return (caught[1] if caught.groups() else "").removeprefix("shared vs ").replace("_", " ")


def _points(frame: pd.DataFrame, key: str, intervals: Known) -> list[tuple[int, Interval]]:
    """List values by iteration, with an interval where the match log has what the metric is the mean of."""
    known, rows = intervals(key), frame[["iteration", key]].dropna()
    values = zip(rows["iteration"].tolist(), rows[key].astype("float64").tolist(), strict=True)
    points = [(int(k), value, known.get(int(k))) for k, value in values if math.isfinite(value)]
    return [(k, Interval(v, *(i[1:] if i else (math.nan, math.nan)))) for k, v, i in points]


def intervals(log: Frames, key: str) -> dict[int, Interval]:
    """A metric's intervals by iteration, where the match log has what it is the mean of."""
    if key.startswith("payoff."):
        paid = log.seats[log.seats["seat"] == key.removeprefix("payoff.")].dropna(subset=["payoff"])
        paid = paid.merge(log.complete[["run", "match"]], on=["run", "match"])
        rows = paid.groupby("iteration")["payoff"].agg(list).to_dict()
        return {int(str(k)): mean_ci([float(value) for value in own], ANY) for k, own in rows.items()}
    if key.startswith("reward."):
        return _of_rewards(log, key.removeprefix("reward."))
    return {int(k): found for (_, k), found in plots.intervals(log, key).items()}


def _of_rewards(log: Frames, role: str) -> dict[int, Interval]:
    """Intervals of a role's total reward in a match, of those who learn, in matches played from their deal."""
    whole = log.complete[log.complete["parent"] == ""]
    held = log.seats[log.seats["trained"] & (log.seats["role"] == role)].merge(whole[["run", "match"]])
    turns = log.turns.merge(held[["run", "match", "seat"]], on=["run", "match", "seat"])
    totals = turns.groupby(["iteration", "match", "seat"])["reward"].sum().astype("float64")
    return {int(str(k)): mean_ci(own.tolist(), ANY) for k, own in totals.groupby("iteration")}


def levels_of(log: Frames, keys: Mapping[str, Any], theory: Mapping[str, float]) -> Iterator[Level]:
    """Yield what theory says of these figures, in the page's own words."""
    seats = [str(seat) for seat in log.seats["seat"].unique()]
    for name, value in theory.items():
        about, words = THEORY.get(name, ("", ""))
        about = about.replace("FIRST", seats[0] if seats else "")
        if about and any(key == about or key.startswith(f"{about}.") for key in keys):
            yield Level(words, value)
    if any(key.startswith("payoff.") for key in keys):
        columns = [c for c in map(str, log.matches.columns) if re.fullmatch(r"report\.nash_payoff_\w+", c)]
        given = [log.matches[column].dropna().astype("float64") for column in columns]
        if given and all(len(own) for own in given):
            yield Level("Nash bargain, mean", float(pd.concat(given).mean()))


def of_panel(evaluations: Sequence[Evaluation]) -> Iterator[Curve]:
    """Payoff against the panel, beside what the best response to it earns; nothing before the second evaluation."""
    points = []
    for one in evaluations:
        values = [value for value in by_deal(one, "payoff") if value is not None]
        if values and one.iteration is not None:
            points.append((one.iteration, mean_ci(values, ANY)))
    best = best_response(evaluations)
    levels = [] if best is None else [Level("best response", best)]
    if len(evaluations) > 1:
        note = f"the same {evaluations[-1].deals} deals each time"
        yield Curve("Payoff against the panel", ("panel.payoff",), [Series("", points)], levels, ANY, note)


def outcomes(log: Frames) -> dict[str, Any] | None:
    """Payoffs of two sides in the first and the last iteration; None for more sides, or fewer.

    `clouds` are places of both payoffs with the share of the matches that ended so; `front` is the Pareto front.
    """
    with suppress(StoreError):
        paid, theory = plots.two_sides(log)
        first, last = int(paid["iteration"].min()), int(paid["iteration"].max())
        clouds = []
        for number in dict.fromkeys([first, last]):
            counts = paid[paid["iteration"] == number].groupby(["x", "y"]).size().reset_index()
            rows = counts.astype("float64").to_numpy().tolist()
            whole = sum(row[2] for row in rows)
            clouds.append({"iteration": number, "places": [[x, y, n / whole] for x, y, n in rows]})
        front = plots.pareto_front(paid[["x", "y"]].astype("float64").to_numpy().tolist())
        marks = [[f"{name.replace('_', ' ')}, mean", *place] for name, place in theory.items()]
        sides = [harmless(side) for side in paid.attrs["sides"]]
        return {"sides": sides, "clouds": clouds, "front": front, "theory": marks}
    return None
