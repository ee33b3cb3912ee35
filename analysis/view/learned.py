"""Figures of a run in the first and the last iteration, sorted by relevance, and a one-sentence summary."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.comparison import collect_figures
from analysis.frames import Frames, is_numeric
from analysis.view.formatting import format_value, sanitize
from analysis.view.metric_names import Name, name_figure
from arena.statistics import ANY, SHARE, Bounds, Interval, difference_ci, mean_ci, paired_ci, range_of
from arena.store.evaluations import Evaluation, read_evaluations, select_latest
from arena.store.reader import RunReader

RELEVANT_FIGURES = (
    r"panel\.payoff", r"panel\.gap", r"panel\.deal", r"panel\.valid", r"success|solved|won|correct", r"deal|trade",
    r"learners payoff", r"efficiency|score", r"valid( per match)?", r"payoff .+", r"equilibrium_distance", r"turns",
)  # fmt: skip
"""Patterns of figures in order of relevance."""
RELEVANT_METRICS = (
    *RELEVANT_FIGURES[:4], r"report\.(success|solved|won|correct)", r"report\.(deal|trade)", r"payoff_against\..+",
    r"mean_payoff", r"report\.(efficiency|score)", r"valid_rate", r"payoff\..+", r"report\.equilibrium_distance",
    r"report\.turns",
)  # fmt: skip
"""The same order for metrics of iterations. Their other counts are totals of an iteration, not figures of a match."""
TILES, ROWS = 3, 6
NEARLY_ALL = 0.9
DUPLICATE_METRICS = ("run", "iteration", "valid_rate", "mean_payoff", "turns")
"""Columns that repeat a figure of the matches."""


class Figure(NamedTuple):
    """Figure in the first and the last iteration, their difference, and its values in all iterations (`trail`)."""

    key: str
    first: Interval
    last: Interval
    difference: Interval
    bounds: Bounds
    trail: tuple[float, ...] = ()

    @property
    def name(self) -> Name:
        """Readable name of the figure, with the direction that is better."""
        return name_figure(self.key)

    @property
    def is_significant(self) -> bool:
        """True if the interval of the difference excludes 0."""
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def verdict(self) -> str:
        """Verdict on the difference: `better` or `worse`, or `changed` if no direction is better.

        `same` means within noise, `untold` that there is no interval.
        """
        if math.isnan(self.difference.low):
            return "untold"
        if not self.is_significant:
            return "same"
        if not self.name.better:
            return "changed"
        return "better" if (self.difference.estimate > 0) == (self.name.better == "more") else "worse"

    @property
    def has_not_moved(self) -> bool:
        """True if both values print alike and the interval of the difference includes 0."""
        return not self.is_significant and format_value(self.first.estimate, self.bounds) == format_value(
            self.last.estimate, self.bounds
        )

    @property
    def is_constant(self) -> bool:
        """True if the figure never changed, such as a sum that is always zero."""
        return self.first.estimate == self.last.estimate and len({*self.trail}) <= 1


def list_figures(log: Frames, evaluations: Sequence[Evaluation]) -> list[Figure]:
    """Return the figures that changed during the run, against the panel and of matches, the most relevant first.

    In zero-sum games of two seats, the learners' payoff and the second seat's are left out.
    """
    seats = log.seats["seat"].unique().tolist()
    left_out = {"learners payoff", f"payoff {seats[1]}"} if len(seats) == 2 and is_zero_sum(log) else set()
    found = [
        f for f in (*_panel_figures(evaluations), *_match_figures(log)) if not f.is_constant and f.key not in left_out
    ]
    return sorted(found, key=lambda figure: (figure.has_not_moved, _rank(figure.key)))


def is_zero_sum(log: Frames) -> bool:
    """Return True if all paid seats learn and nearly all matches sum to zero: then their mean payoff says nothing."""
    paid = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    among = paid[paid.groupby("match")["trained"].transform("min").astype(bool)] if len(paid) else paid
    if among.empty or len(among) < len(paid):
        return False
    sums = among.groupby("match")["payoff"].agg(["sum", "size"])
    return float(((sums["sum"].abs() < 1e-9) & (sums["size"] > 1)).mean()) > NEARLY_ALL


def _rank(key: str) -> int:
    return next((k for k, pattern in enumerate(RELEVANT_FIGURES) if re.fullmatch(pattern, key)), len(RELEVANT_FIGURES))


def comparable_evaluations(reader: RunReader) -> list[Evaluation]:
    """Return the run's evaluations with the same deals, opponents and seats as the latest, oldest first."""
    found = read_evaluations(reader.path)
    return [e for e in select_latest(found) if e.iteration is not None] if found else []


def values_by_deal(evaluation: Evaluation, name: str) -> list[float | None]:
    """Return the figure `name` of `Cell`, such as `payoff`, by deal: its mean over opponents and seats.

    None for a deal without a value for one of them; [] if a cell lacks the figure.
    """
    told = [own for cell in evaluation.cells if (own := getattr(cell, name)) is not None]
    rows = zip(*told, strict=True) if len(told) == len(evaluation.cells) else ()
    return [None if None in row else sum(row) / len(row) for row in rows]


def gaps_to_best_response(evaluation: Evaluation) -> list[float | None]:
    """Return the best response's payoff minus the reached one, per deal: None where unknown, [] if theory lacks it."""
    best, paid = values_by_deal(evaluation, "best_response"), values_by_deal(evaluation, "payoff")
    pairs = zip(best, paid, strict=True) if best else ()
    return [None if a is None or b is None else a - b for a, b in pairs]


def _panel_figures(evaluations: Sequence[Evaluation]) -> Iterator[Figure]:
    """Yield figures against the panel of fixed opponents, from the first to the last evaluation, paired by deal."""
    if len(evaluations) < 2:
        return
    for name, bounds in (("payoff", ANY), ("gap", ANY), ("valid", SHARE), ("deal", SHARE)):
        rows = [gaps_to_best_response(e) if name == "gap" else values_by_deal(e, name) for e in evaluations]
        pairs = [(a, b) for a, b in zip(rows[0], rows[-1], strict=True) if a is not None and b is not None]
        if pairs:
            before, after = [a for a, _ in pairs], [b for _, b in pairs]
            trail = tuple(float(np.mean(own)) for row in rows if (own := [v for v in row if v is not None]))
            yield Figure(
                f"panel.{name}", mean_ci(before, bounds), mean_ci(after, bounds), paired_ci(before, after, bounds),
                bounds, trail,
            )  # fmt: skip


def _match_figures(log: Frames) -> Iterator[Figure]:
    """Yield each figure of finished matches in the first and the last iteration, if both have it."""
    values = collect_figures(log)
    if values.empty:
        return
    first, last = (values[values["iteration"] == k] for k in (values["iteration"].min(), values["iteration"].max()))
    means = values.groupby("iteration")[[str(name) for name in values.columns[5:]]].mean()
    for name in map(str, values.columns[5:]):
        one, two = (part[name].dropna().astype("float64").tolist() for part in (first, last))
        if one and two:
            bounds = range_of(f"report.{name}", [*one, *two])
            few = len(one) < 2 or len(two) < 2
            moved = float(np.mean(two) - np.mean(one))
            difference = Interval(moved, math.nan, math.nan) if few else difference_ci(one, two, bounds)
            trail = tuple(means[name].dropna().astype("float64").round(12).tolist())
            yield Figure(name, mean_ci(one, bounds), mean_ci(two, bounds), difference, bounds, trail)


def list_learning_metrics(log: Frames, known: Sequence[Figure]) -> list[tuple[str, list[float]]]:
    """Return name and values by iteration of metrics that are no figures of matches, not in `known`, and not zero."""
    frame, taken = log.iterations, {figure.key for figure in known}
    found = []
    for key in map(str, frame.columns):
        if (
            key in (*DUPLICATE_METRICS, *taken)
            or key.startswith(("report.", "payoff.", "panel."))
            or not is_numeric(frame[key])
        ):
            continue
        values = [v for v in frame[key].dropna().astype("float64").tolist() if math.isfinite(v)]
        if any(values):
            found.append((key, values))
    return found


def write_sentence(log: Frames, found: Sequence[Figure], best: float | None, value: float | None = None) -> str:
    """Return a sentence on the run's most relevant figure, the first of `found`: where it started and ended.

    `best` is the best response's payoff against the panel, `value` the first seat's payoff under perfect play.
    """
    numbers = log.matches["iteration"].nunique()
    games = sanitize(", ".join(map(str, log.matches["game"].unique()))).replace("_", " ")
    finished = int((log.matches["status"] == "finished").sum())
    if not finished:
        return "No match has ended yet."
    if not found:
        return f"{_format_count(numbers, 'iteration')} so far, and nothing yet to compare."
    head = found[0]
    first, last = format_value(head.first.estimate, head.bounds), format_value(head.last.estimate, head.bounds)
    moved = f"moved from {first} to {last}, within noise"
    if head.is_significant:
        moved = f"{'rose' if head.difference.estimate > 0 else 'fell'} from {first} to {last}"
    elif first == last:
        moved = f"stayed at {last}"
    reach = ""
    if best is not None and head.key == "panel.payoff":
        reach = f"; the best response to it earns {format_value(best, ANY)}"
    elif value is not None and head.key == f"payoff {log.seats['seat'].iloc[0]}":
        reach = f"; between perfect players it is {format_value(value, ANY)}"
    span = f"{_format_count(numbers, 'iteration')} and {_format_count(finished, 'match')} of {games}"
    return f"Over {span}, {sanitize(head.name.words)} {moved}{reach}."


def _format_count(count: int, word: str) -> str:
    plural = "es" if word == "match" else "s"
    return f"{count:,} {word}{'' if count == 1 else plural}"


def format_difference(figure: Figure) -> str:
    """Format the figure's difference with its sign, for shares in percentage points."""
    text = format_value(figure.difference.estimate, figure.bounds)
    text = text if text.startswith("\N{MINUS SIGN}") else f"+{text}"
    return text.replace("\N{NO-BREAK SPACE}%", "\N{NO-BREAK SPACE}points")


def best_response(evaluations: Sequence[Evaluation]) -> float | None:
    """Return the best response's mean payoff in the last evaluation; None if it is unknown for a deal or opponent."""
    values = values_by_deal(evaluations[-1], "best_response") if evaluations else []
    known = [value for value in values if value is not None]
    return float(pd.Series(known).mean()) if known and len(known) == len(values) else None
