"""Charts of a run for the viewer: metrics at once, their intervals as the log is read iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import pandas as pd

from analysis.frames import Frames, is_numeric
from analysis.view.charts import Curve, Level, find_levels, intervals, make_charts, make_panel_charts
from analysis.view.index import Index, Stamp
from analysis.view.learned import comparable_evaluations, is_zero_sum
from analysis.view.over_optimisation import over_optimisation
from arena.errors import StoreError
from arena.statistics import Interval

PATIENCE = 0.4
"""Seconds that a request spends reading."""
RUN_NAME = "run"
Theory = Callable[[str], Mapping[str, float]]
CHARTS: Sequence[Callable[[pd.DataFrame], Iterable[Curve]]] = (over_optimisation,)
"""Charts of several metrics together, each a function of the table of metrics by iteration."""
LOGGED_METRICS = ("valid_rate", "mean_payoff", "payoff.", "report.", "reward.")
"""Prefixes of metrics that the match log has match by match, so that intervals can be computed."""


class Curves:
    """Charts of one run. Intervals are read over several calls and cached until an iteration's files change."""

    def __init__(self, index: Index, theory: Theory | None) -> None:
        self.index, self.theory = index, theory
        self._known: dict[int, tuple[Stamp, dict[str, Interval]]] = {}
        self._has_answered = False
        self._newest_frames: tuple[int, Frames | None] = (-1, None)

    def charts(self) -> dict[str, Any]:
        """Return the charts as JSON values, and in `unread` the number of iterations whose intervals are not yet read.

        The first call returns metrics without intervals, which needs no match log. Later calls read for `PATIENCE`
        seconds.
        """
        frame = Frames({RUN_NAME: self.index.reader}, {RUN_NAME: []}).iterations
        keys = [str(key) for key in frame.columns if str(key).startswith(LOGGED_METRICS) and is_numeric(frame[key])]
        first, self._has_answered = not self._has_answered, True
        unread = len(frame) if first else self._read_more([int(k) for k in frame["iteration"]], keys)
        is_zero_sum_run = not first and self._is_zero_sum()
        metric_charts = make_charts(
            frame,
            self._find_intervals,
            lambda chart_keys: [] if first else self._find_levels(chart_keys),
            is_zero_sum_run,
        )
        shown = [
            *make_panel_charts(comparable_evaluations(self.index.reader)),
            *(curve for chart in CHARTS for curve in chart(frame)),
            *sorted(metric_charts, key=lambda curve: curve.still),
        ]
        return {
            "iterations": frame["iteration"].tolist(),
            "unread": unread,
            "curves": [curve.as_json() for curve in shown],
        }

    def _read_more(self, numbers: list[int], keys: list[str]) -> int:
        """Read intervals of the newest unread iterations for `PATIENCE` seconds. Return the number left unread."""
        self.index.refresh(0.1)
        start = monotonic()
        with self.index.lock:
            unread = [k for k in numbers if self.index.stamp(k) and self._known.get(k, ((),))[0] != self.index.stamp(k)]
            while unread and monotonic() - start < PATIENCE:
                number = unread.pop()
                log = Frames({RUN_NAME: self.index.reader}, {RUN_NAME: [number]}, {number})
                known = dict[str, Interval]()
                with suppress(StoreError):  # a damaged iteration has no intervals; the list shows the error
                    intervals_by_key = {key: intervals(log, key).get(number) for key in keys}
                    known = {key: interval for key, interval in intervals_by_key.items() if interval}
                self._known[number] = (self.index.stamp(number), known)
        return len(unread)

    def _find_intervals(self, key: str) -> dict[int, Interval]:
        return {k: known[key] for k, (_, known) in self._known.items() if key in known}

    def _find_levels(self, keys: Mapping[str, Any]) -> list[Level]:
        games = self.index.table()["game"].unique().to_pylist()
        theory = self.theory(games[0]) if self.theory and len(games) == 1 else {}
        with suppress(StoreError):
            return [*find_levels(self._load_newest(), keys, theory)]
        return []

    def _is_zero_sum(self) -> bool:
        with suppress(StoreError):
            return is_zero_sum(self._load_newest())
        return False

    def _load_newest(self) -> Frames:
        """Return the tables of the newest sealed iteration. Theory values that are means over deals use its deals."""
        sealed = [k for k in self.index.iterations() if self.index.is_sealed(k)]
        number = sealed[-1] if sealed else -1
        if self._newest_frames[0] != number or self._newest_frames[1] is None:
            log = Frames({RUN_NAME: self.index.reader}, {RUN_NAME: [number] if sealed else []}, {number})
            self._newest_frames = (number, log)
        assert self._newest_frames[1] is not None
        return self._newest_frames[1]
