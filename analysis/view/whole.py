"""Figures that need all of a run at once: alarms, the league as a graph, a summary. Of a large run in a child.

A child gives its memory back when it ends, and leaves this process free to answer.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from analysis.view.index import Index
from arena.plain import printable
from arena.process import end_with
from arena.store.reader import RunReader

LARGE = 30 * 10**6
"""Bytes of a log from which on a child reads it."""
NEWEST = 20_000
"""Matches of which a league is made at least, where a run has as many: ratings take their time."""
RARELY = 20
"""As many times as long as an answer took it stands, though the run goes on: a run is not to be slowed by who looks."""
NAMES = 40
"""Contenders that a graph shows: those of most matches."""


class Whole:
    """Figures of one run, kept until its files change."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._found: dict[str, tuple[str, float, Any]] = {}
        self._lock = Lock()

    def figures(self, function: Callable[..., Any], *given: Any) -> Any:
        """The function's answer for the run and what is given, from memory where no file has changed."""
        with self._lock:
            now, name = self.index.fingerprint(), function.__name__
            known, until, answer = self._found.get(name, ("", 0.0, None))
            if known != now and monotonic() >= until:
                begun, answer = monotonic(), self._answer(function, *given)
                self._found[name] = (now, monotonic() + RARELY * (monotonic() - begun), answer)
            return answer

    def _answer(self, function: Callable[..., Any], *given: Any) -> Any:
        size = sum(path.stat().st_size for path in self.index.reader.log.folder.glob("*.parquet"))
        if size < LARGE:
            return function(self.index.reader.path, *given)
        context = multiprocessing.get_context("spawn")  # it ends with this process, also where that is killed
        with ProcessPoolExecutor(1, context, initializer=end_with, initargs=(os.getpid(),)) as child:
            return child.submit(function, self.index.reader.path, *given).result()


def rung(run: Path) -> list[dict[str, Any]]:
    """The alarms of a run (`analysis.alarms`)."""
    from analysis.alarms import alarms
    from analysis.frames import load

    return [
        {"name": a.name, "who": printable(a.who), "before": list(a.before), "after": list(a.after)}
        for a in alarms(load(run))
    ]


def league(run: Path) -> dict[str, Any]:
    """The league of a run as a graph.

    `nodes` with their matches and whether they learn, `edges` with how far ahead one is, and `rings`; of a long run the
    newest iterations alone, from `since` on.
    """
    from analysis.frames import load
    from analysis.league import beats, cycles, pairs, ratings
    from analysis.page.league import matrix

    reader, numbers, matches = RunReader(run), list[int](), 0
    for k in reversed(reader.iterations()):
        numbers.append(k)
        matches += len(reader.log.table(k, ["id"]))
        if matches >= NEWEST:
            break
    log = load(run, iterations=numbers)
    seats = log.frame("seats", ["policy", "match", "trained", "role"])
    counts = seats.groupby("policy")["match"].nunique().sort_values(ascending=False, kind="stable")
    learns = {str(name) for name in seats.loc[seats["trained"], "policy"]}
    names = [str(name) for name in counts.index[:NAMES]]
    met = [pair for pair in pairs(log) if pair.one in names and pair.other in names]
    rated = ratings(log)
    ratings_now = {str(row["policy"]): [row["mu"], row["sigma"]] for row in rated.to_dict("records")}  # the last stands
    return {
        "nodes": [
            {
                "name": name, "matches": int(counts[name]), "learns": name in learns,
                "rating": ratings_now.get(name),
            }
            for name in names
        ],
        "edges": [
            {"one": p.one, "other": p.other, "matches": p.matches, "ahead": list(p.ahead)} for p in met
        ],
        "matrix": matrix(log),
        "rings": [list(ring) for ring in cycles(beats(log))[:20]],
        "left_out": max(0, len(counts) - NAMES), "since": min(numbers, default=0), "matches": matches,
    }  # fmt: skip
