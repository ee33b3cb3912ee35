"""Runs as wholes on the page: a line in the list of them, the head of one, and answers in SQL."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.frames import Frames, load, numeric
from analysis.page.learned import TELLING_METRICS
from analysis.page.names import named
from analysis.page.pictures import STILL
from analysis.page.texts import in_words
from analysis.query import answer
from analysis.view.index import Index
from analysis.view.plain import text
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import SHARE, range_of
from arena.store import locks

ROWS, CELL, SECONDS, SETTINGS, FLIGHT = 1000, 2000, 60.0, 500, 100
"""Rows of an answer, characters of a cell, time of a query, settings and matches in flight that are shown."""


def line(name: str, index: Index) -> dict[str, Any]:
    """A run in the list: how far it is, whether it goes on, and its most telling figure's way."""
    log = Frames({name: index.reader}, {name: []})
    try:
        frame, about = log.iterations, log.runs.iloc[0]
    except StoreError as error:
        return {"name": name, "error": printable(str(error))}
    return {
        "name": name,
        "path": str(index.reader.path),
        "started": _said(about["started"]),
        "experiment": _said(about.get("config.name")),
        "game": _said(about.get("config.game.name")),
        "iterations": len(frame),
        "planned": _said(about.get("config.iterations")),
        "logged": len(index.iterations()),
        "live": holder(index) is not None,
        "figure": _telling(frame),
    }


def about(name: str, index: Index) -> dict[str, Any]:
    """The head of a run's page: what it is, and its settings."""
    row = Frames({name: index.reader}, {name: []}).runs.iloc[0]
    settings = [
        (str(key).removeprefix("config."), text(str(value), 300))
        for key, value in row.items()
        if str(key).startswith("config.") and _said(value) is not None
    ]
    return line(name, index) | {"arena": _said(row["arena"]), "settings": settings[:SETTINGS]}


def in_flight(index: Index) -> dict[str, Any]:
    """The matches that are being played just now: how many are followed, and of the first ones how far they are."""
    if holder(index) is None:
        return {"live": False, "total": 0, "matches": []}  # what a killed run left says nothing of now
    index.refresh(0.1)
    found = index.in_flight()
    shown = [
        {
            "match": id,
            "seats": [{"seat": text(seat, CELL), "policy": text(s.policy, CELL)} for seat, s in one.head.seats.items()],
            "turns": len(one.places), "seat": one.seat, "said": one.said, "started": one.head.started[:40],
        }
        for id, one in [*found.items()][:FLIGHT]
    ]  # fmt: skip
    return {"live": True, "total": len(found), "matches": shown}


def holder(index: Index) -> int | None:
    """The process that writes in the run just now, None where there is none; the run's lock is not touched for it."""
    number = locks.holder(index.reader.path)
    try:
        if number is not None:
            os.kill(number, 0)
    except PermissionError:  # somebody else's process
        return number
    except (OSError, OverflowError):
        return None
    return number


def asked(runs: Sequence[Index], query: str) -> dict[str, Any]:
    """The answer to a SELECT: names, rows of cells, and how many rows there are in all."""
    table = answer(load([index.reader.path for index in runs]), query, SECONDS)
    rows = zip(*(column.to_pylist() for column in table.slice(0, ROWS).columns), strict=True)
    cells = [[text(v, CELL) if isinstance(v, str) else v for v in row] for row in rows]
    return {"columns": table.column_names, "rows": cells, "total": len(table)}


def _telling(frame: Any) -> dict[str, Any] | None:
    """Return the figure that tells most, with its values by iteration: one that moved before one that did not."""
    moving, silent = [], {"mean_payoff"} if "zero_sum" in frame.columns else set[str]()
    for pattern in TELLING_METRICS:
        for key in map(str, frame.columns):
            if key not in silent and re.fullmatch(pattern, key) and numeric(frame[key]):
                values = frame[key].dropna().astype("float64").tolist()
                if len({round(value, 9) for value in values}) > 1:
                    bounds = range_of(key, values)
                    same = in_words(values[0], bounds) == in_words(values[-1], bounds)
                    same |= bounds == SHARE and abs(values[-1] - values[0]) < STILL
                    moving.append((same, {"key": key, "words": named(key).words, "values": values, "bounds": bounds}))
    return min(moving, key=lambda one: one[0], default=(False, None))[1]


def _said(value: Any) -> Any:
    """A value of a table, None for what is missing there."""
    return None if pd.isna(value) else value
