"""Outcome of a run: a sentence, figures at first and at last, metrics of learning, outcomes of two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.frames import Frames, load
from analysis.page import learned
from analysis.page.learned import Figure
from analysis.page.names import named
from analysis.page.pictures import outcomes
from analysis.page.texts import MOST, harmless, in_words, spread
from arena.statistics import ANY, SHARE, range_of

MARKS = {"better": "better", "worse": "worse", "changed": "", "same": "within noise", "untold": "one match"}
"""What a difference is called."""
Theory = Mapping[str, Mapping[str, float]]
"""By game, what it states about itself."""


def summary(run: Frames | Path, theory: Theory | None = None) -> dict[str, Any]:
    """The figures of a run in words, the most telling first, every text harmless; StoreError as `load`."""
    log = run if isinstance(run, Frames) else load(run)
    (reader,) = log.readers.values()
    evaluations = learned.evaluated(reader)
    found = learned.figures(log, evaluations)
    games = [str(game) for game in log.matches["game"].unique()]
    value = (theory or {}).get(games[0], {}).get("value") if len(games) == 1 else None
    learning = learned.learning(log, found)
    return {
        "sentence": learned.sentence(log, found, learned.best_response(evaluations), value),
        "rows": [_row(figure) for figure in found[: learned.ROWS + MOST]],
        "tiles": learned.TILES, "shown": learned.ROWS, "rows_in_all": len(found),
        "learning": [_metric(key, values) for key, values in learning[:MOST]],
        "learning_in_all": len(learning),
        "iterations": int(log.matches["iteration"].nunique()), "matches": len(log.matches),
        "failed": int((log.matches["status"] == "failed").sum()), "turns": len(log.turns),
        "games": [harmless(game) for game in games[:MOST]],
        "outcomes": None if log.matches.empty else outcomes(log),
    }  # fmt: skip


def _row(figure: Figure) -> dict[str, Any]:
    """A figure for its tile and its row."""
    return {
        "key": harmless(figure.key),
        "name": harmless(figure.name.words),
        "first": in_words(figure.first.estimate, figure.bounds),
        "first_spread": spread(figure.first, figure.bounds),
        "last": in_words(figure.last.estimate, figure.bounds),
        "last_spread": spread(figure.last, figure.bounds),
        "moved": learned.moved(figure),
        "moved_spread": spread(figure.difference, figure.bounds),
        "arrow": "≈" if not figure.sure else "▲" if figure.difference.estimate > 0 else "▼",
        "verdict": figure.verdict,
        "word": MARKS[figure.verdict],
        "trail": figure.trail,
    }


def _metric(key: str, values: Sequence[float]) -> dict[str, Any]:
    """A metric of iterations, which has no interval."""
    bounds = SHARE if range_of(key, values) == SHARE else ANY
    ends = {"first": in_words(values[0], bounds), "last": in_words(values[-1], bounds)}
    return {"key": harmless(key), "name": harmless(named(key).words), **ends, "trail": values}
