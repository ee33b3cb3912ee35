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
"""The same order for metrics of iterations, without their counts, which are totals of an iteration."""
TILES, ROWS = 3, 6
NEARLY_ALL = 0.9
DUPLICATE_METRICS = ("run", "iteration", "valid_rate", "mean_payoff", "turns")
"""Columns of the table of iterations that are no metrics, or repeat a figure of the matches."""


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

        `same` means not significant, and `untold` that the difference has no interval.
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
        """True if both values look the same when formatted and the difference is not significant."""
        return not self.is_significant and format_value(self.first.estimate, self.bounds) == format_value(
            self.last.estimate, self.bounds
        )

    @property
    def is_constant(self) -> bool:
        """True if the figure never changed, such as a sum that is always zero."""
        return self.first.estimate == self.last.estimate and len({*self.trail}) <= 1


def list_figures(log: Frames, evaluations: Sequence[Evaluation]) -> list[Figure]:
    """Return the figures that changed during the run, from panel evaluations and matches, most relevant first.

    In zero-sum games of two seats, the learners' mean payoff and the second seat's payoff are left out.
    """
    seats = log.seats["seat"].unique().tolist()
    left_out = {"learners payoff", f"payoff {seats[1]}"} if len(seats) == 2 and is_zero_sum(log) else set()
    figures = [
        f for f in (*_panel_figures(evaluations), *_match_figures(log)) if not f.is_constant and f.key not in left_out
    ]
    return sorted(figures, key=lambda figure: (figure.has_not_moved, _rank(figure.key)))


def is_zero_sum(log: Frames) -> bool:
    """Return True if all paid seats learn and nearly all matches sum to zero, so that mean payoffs say nothing."""
    payoffs = log.seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    learners = payoffs[payoffs.groupby("match")["trained"].transform("min").astype(bool)] if len(payoffs) else payoffs
    if learners.empty or len(learners) < len(payoffs):
        return False
    sums = learners.groupby("match")["payoff"].agg(["sum", "size"])
    return float(((sums["sum"].abs() < 1e-9) & (sums["size"] > 1)).mean()) > NEARLY_ALL


def _rank(key: str) -> int:
    return next((k for k, pattern in enumerate(RELEVANT_FIGURES) if re.fullmatch(pattern, key)), len(RELEVANT_FIGURES))


def comparable_evaluations(reader: RunReader) -> list[Evaluation]:
    """Return the run's evaluations with the same deals, opponents and seats as the latest, oldest first."""
    evaluations = read_evaluations(reader.path)
    return [e for e in select_latest(evaluations) if e.iteration is not None] if evaluations else []


def values_by_deal(evaluation: Evaluation, name: str) -> list[float | None]:
    """Return an evaluation's figure by deal: its mean over opponents and seats. `name` is a field such as `payoff`.

    A deal without a value for one of them has None. Returns [] if an opponent at some seat lacks the figure.
    """
    by_cell = [values for cell in evaluation.cells if (values := getattr(cell, name)) is not None]
    rows = zip(*by_cell, strict=True) if len(by_cell) == len(evaluation.cells) else ()
    return [None if None in row else sum(row) / len(row) for row in rows]


def gaps_to_best_response(evaluation: Evaluation) -> list[float | None]:
    """Return the best response's payoff minus the actual one, by deal; None where unknown, [] if never known."""
    best, payoffs = values_by_deal(evaluation, "best_response"), values_by_deal(evaluation, "payoff")
    pairs = zip(best, payoffs, strict=True) if best else ()
    return [None if a is None or b is None else a - b for a, b in pairs]


def _panel_figures(evaluations: Sequence[Evaluation]) -> Iterator[Figure]:
    """Yield figures against the panel in the first and last evaluation, with differences paired by deal."""
    if len(evaluations) < 2:
        return
    for name, bounds in (("payoff", ANY), ("gap", ANY), ("valid", SHARE), ("deal", SHARE)):
        rows = [gaps_to_best_response(e) if name == "gap" else values_by_deal(e, name) for e in evaluations]
        pairs = [(a, b) for a, b in zip(rows[0], rows[-1], strict=True) if a is not None and b is not None]
        if pairs:
            before, after = [a for a, _ in pairs], [b for _, b in pairs]
            trail = tuple(float(np.mean(known)) for row in rows if (known := [v for v in row if v is not None]))
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
        first_values, last_values = (part[name].dropna().astype("float64").tolist() for part in (first, last))
        if first_values and last_values:
            bounds = range_of(f"report.{name}", [*first_values, *last_values])
            is_single = len(first_values) < 2 or len(last_values) < 2
            change = float(np.mean(last_values) - np.mean(first_values))
            difference = (
                Interval(change, math.nan, math.nan) if is_single else difference_ci(first_values, last_values, bounds)
            )
            trail = tuple(means[name].dropna().astype("float64").round(12).tolist())
            yield Figure(name, mean_ci(first_values, bounds), mean_ci(last_values, bounds), difference, bounds, trail)


def list_learning_metrics(log: Frames, known: Sequence[Figure]) -> list[tuple[str, list[float]]]:
    """Return name and values of other metrics of iterations: no figures of matches, not in `known`, not all zero."""
    frame, known_keys = log.iterations, {figure.key for figure in known}
    metrics = []
    for key in map(str, frame.columns):
        if (
            key in (*DUPLICATE_METRICS, *known_keys)
            or key.startswith(("report.", "payoff.", "panel."))
            or not is_numeric(frame[key])
        ):
            continue
        values = [v for v in frame[key].dropna().astype("float64").tolist() if math.isfinite(v)]
        if any(values):
            metrics.append((key, values))
    return metrics


def write_sentence(log: Frames, figures: Sequence[Figure], best: float | None, value: float | None = None) -> str:
    """Return a sentence that states the first and last value of `found[0]`, the run's most relevant figure.

    `best` is the best response's payoff against the panel, `value` the first seat's payoff under perfect play.
    """
    numbers = log.matches["iteration"].nunique()
    games = sanitize(", ".join(map(str, log.matches["game"].unique()))).replace("_", " ")
    finished = int((log.matches["status"] == "finished").sum())
    if not finished:
        return "No match has ended yet."
    if not figures:
        return f"{_format_count(numbers, 'iteration')} so far, and nothing yet to compare."
    figure = figures[0]
    first, last = format_value(figure.first.estimate, figure.bounds), format_value(figure.last.estimate, figure.bounds)
    change_text = f"moved from {first} to {last}, within noise"
    if figure.is_significant:
        change_text = f"{'rose' if figure.difference.estimate > 0 else 'fell'} from {first} to {last}"
    elif first == last:
        change_text = f"stayed at {last}"
    reference = ""
    if best is not None and figure.key == "panel.payoff":
        reference = f"; the best response to it earns {format_value(best, ANY)}"
    elif value is not None and figure.key == f"payoff {log.seats['seat'].iloc[0]}":
        reference = f"; between perfect players it is {format_value(value, ANY)}"
    span = f"{_format_count(numbers, 'iteration')} and {_format_count(finished, 'match')} of {games}"
    return f"Over {span}, {sanitize(figure.name.words)} {change_text}{reference}."


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
