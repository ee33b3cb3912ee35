"""Summary of a run for the viewer: a sentence, figures in the first and last iteration, metrics, outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.frames import Frames, load
from analysis.view import learned
from analysis.view.charts import outcomes
from analysis.view.formatting import MAX_ROWS, format_interval, format_value, sanitize
from analysis.view.learned import Figure
from analysis.view.metric_names import name_figure
from arena.statistics import ANY, SHARE, range_of

VERDICT_WORDS = {"better": "better", "worse": "worse", "changed": "", "same": "within noise", "untold": "one match"}
"""The page's word for each verdict of `Figure.verdict`."""
Theory = Mapping[str, Mapping[str, float]]
"""Theory values of each game."""


def summarise(run: Frames | Path, theory: Theory | None = None) -> dict[str, Any]:
    """Return a run's summary as JSON values with sanitized texts: `sentence`, figures (`rows`), counts, `outcomes`.

    The most relevant figures come first. `theory` has the theory values of games. Raises StoreError as `load` does.
    """
    log = run if isinstance(run, Frames) else load(run)
    (reader,) = log.readers.values()
    evaluations = learned.comparable_evaluations(reader)
    figures = learned.list_figures(log, evaluations)
    games = [str(game) for game in log.matches["game"].unique()]
    value = (theory or {}).get(games[0], {}).get("value") if len(games) == 1 else None
    learning = learned.list_learning_metrics(log, figures)
    return {
        "sentence": learned.write_sentence(log, figures, learned.best_response(evaluations), value),
        "rows": [_format_row(figure) for figure in figures[: learned.ROWS + MAX_ROWS]],
        "tiles": learned.TILES, "shown": learned.ROWS, "rows_in_all": len(figures),
        "learning": [_format_metric(key, values) for key, values in learning[:MAX_ROWS]],
        "learning_in_all": len(learning),
        "iterations": int(log.matches["iteration"].nunique()), "matches": len(log.matches),
        "failed": int((log.matches["status"] == "failed").sum()), "turns": len(log.turns),
        "games": [sanitize(game) for game in games[:MAX_ROWS]],
        "outcomes": None if log.matches.empty else outcomes(log),
    }  # fmt: skip


def _format_row(figure: Figure) -> dict[str, Any]:
    """Return a figure as formatted texts for the page: first and last value, difference, verdict, and its `trail`."""
    return {
        "key": sanitize(figure.key),
        "name": sanitize(figure.name.words),
        "first": format_value(figure.first.estimate, figure.bounds),
        "first_spread": format_interval(figure.first, figure.bounds),
        "last": format_value(figure.last.estimate, figure.bounds),
        "last_spread": format_interval(figure.last, figure.bounds),
        "moved": learned.format_difference(figure),
        "moved_spread": format_interval(figure.difference, figure.bounds),
        "arrow": "≈" if not figure.is_significant else "▲" if figure.difference.estimate > 0 else "▼",
        "verdict": figure.verdict,
        "word": VERDICT_WORDS[figure.verdict],
        "trail": figure.trail,
    }


def _format_metric(key: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a metric of iterations with its first and last value as formatted texts, and all values as `trail`."""
    bounds = SHARE if range_of(key, values) == SHARE else ANY
    first_and_last = {"first": format_value(values[0], bounds), "last": format_value(values[-1], bounds)}
    return {"key": sanitize(key), "name": sanitize(name_figure(key).words), **first_and_last, "trail": values}
