"""Runs in the viewer: the library of runs, a run's row and description, its matches in progress, SQL queries."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd

from analysis.frames import Frames, is_numeric, load
from analysis.query import run_query
from analysis.view.charts import MIN_MOVE
from analysis.view.formatting import format_value
from analysis.view.index import Index
from analysis.view.json_values import truncate
from analysis.view.learned import RELEVANT_METRICS
from analysis.view.metric_names import name_figure
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import SHARE, range_of
from arena.store import locks
from arena.store.files import CONFIG
from arena.store.reader import RunReader
from arena.store.stages import find_begun_stages, find_pipeline, is_pipeline

MAX_ROWS, MAX_CELL_CHARACTERS, QUERY_SECONDS, MAX_SETTINGS, MAX_IN_FLIGHT = 1000, 2000, 60.0, 500, 100
"""Maximum numbers: rows of an SQL answer, characters of a cell, seconds of a query, settings, matches in progress."""


def summarise_run(name: str, index: Index) -> dict[str, Any]:
    """Return a run's row in the list: name, start, game, progress, whether it is `live`, its most relevant `figure`.

    The row of a damaged run has only `name` and `error`.
    """
    log = Frames({name: index.reader}, {name: []})
    try:
        frame, run = log.iterations, log.runs.iloc[0]
    except StoreError as error:
        return {"name": name, "error": printable(str(error))}
    return {
        "name": name,
        "path": str(index.reader.path),
        "started": _or_none(run["started"]),
        "experiment": _or_none(run.get("config.name")),
        "game": _or_none(run.get("config.game.name")),
        "iterations": len(frame),
        "planned": _or_none(run.get("config.iterations")),
        "logged": len(index.iterations()),
        "live": find_process(index) is not None,
        "figure": _find_most_relevant(frame),
    }


def describe_run(name: str, index: Index) -> dict[str, Any]:
    """Return a run's row with Arena's version and its settings, a list of up to `MAX_SETTINGS` (name, value) pairs."""
    row = Frames({name: index.reader}, {name: []}).runs.iloc[0]
    settings = [
        (str(key).removeprefix("config."), truncate(str(value), 300))
        for key, value in row.items()
        if str(key).startswith("config.") and _or_none(value) is not None
    ]
    return summarise_run(name, index) | {"arena": _or_none(row["arena"]), "settings": settings[:MAX_SETTINGS]}


def list_in_flight(index: Index) -> dict[str, Any]:
    """Return the matches in progress: their number (`total`), and seats, turns and last speech of the first ones."""
    if find_process(index) is None:
        return {"live": False, "total": 0, "matches": []}  # the feed of a killed run is outdated
    index.refresh(0.1)
    in_flight = index.list_in_flight()
    rows = [
        {
            "match": id,
            "seats": [
                {"seat": truncate(seat, MAX_CELL_CHARACTERS), "policy": truncate(player.policy, MAX_CELL_CHARACTERS)}
                for seat, player in match.head.seats.items()
            ],
            "turns": len(match.turn_spans), "seat": match.seat, "said": match.last_speech,
            "started": match.head.started[:40],
        }
        for id, match in [*in_flight.items()][:MAX_IN_FLIGHT]
    ]  # fmt: skip
    return {"live": True, "total": len(in_flight), "matches": rows}


def find_process(index: Index) -> int | None:
    """Return the id of the process that writes the run; None if it is not running. Does not touch the run's lock."""
    number = locks.read_holder(index.reader.path)
    try:
        if number is not None:
            os.kill(number, 0)
    except PermissionError:  # another user's process
        return number
    except (OSError, OverflowError):
        return None
    return number


def answer_sql(runs: Sequence[Index], query: str) -> dict[str, Any]:
    """Run a SELECT over these runs. Returns `columns` (names), up to `MAX_ROWS` `rows`, and the `total` row count.

    Raises ConfigError for an invalid query or one that takes too long.
    """
    table = run_query(load([index.reader.path for index in runs]), query, QUERY_SECONDS)
    rows = zip(*(column.to_pylist() for column in table.slice(0, MAX_ROWS).columns), strict=True)
    cells = [[truncate(v, MAX_CELL_CHARACTERS) if isinstance(v, str) else v for v in row] for row in rows]
    return {"columns": table.column_names, "rows": cells, "total": len(table)}


def _find_most_relevant(frame: Any) -> dict[str, Any] | None:
    """Return the most relevant metric, if possible one that changed noticeably; None if none varies.

    It has `key`, `words` (readable name), `values` by iteration and `bounds`.
    """
    candidates, ignored = [], {"mean_payoff"} if "zero_sum" in frame.columns else set[str]()
    for pattern in RELEVANT_METRICS:
        for key in map(str, frame.columns):
            if key not in ignored and re.fullmatch(pattern, key) and is_numeric(frame[key]):
                values = frame[key].dropna().astype("float64").tolist()
                if len({round(value, 9) for value in values}) > 1:
                    bounds = range_of(key, values)
                    is_unchanged = format_value(values[0], bounds) == format_value(values[-1], bounds)
                    is_unchanged |= bounds == SHARE and abs(values[-1] - values[0]) < MIN_MOVE
                    candidates.append(
                        (
                            is_unchanged,
                            {"key": key, "words": name_figure(key).words, "values": values, "bounds": bounds},
                        )
                    )
    return min(candidates, key=lambda candidate: candidate[0], default=(False, None))[1]


def _or_none(value: Any) -> Any:
    """Return the value, or None if it is missing (NaN, NA or NaT)."""
    return None if pd.isna(value) else value


class Library:
    """Runs that the viewer serves, as an `Index` by name. Requests name runs, so that none can become a path."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Use these runs and the runs in these folders. Raises StoreError if a path is not a folder."""
        self.paths, self._known, self._lock = [path.resolve() for path in paths], dict[Path, Index](), Lock()
        for given_path, path in zip(paths, self.paths, strict=True):
            if not path.is_dir():
                raise StoreError(f"there is no folder {given_path}")

    def runs(self) -> dict[str, Index]:
        """Find all runs, including new ones, and return them by name. Repeated names get their folder's as prefix."""
        paths = list(dict.fromkeys(run for path in self.paths for run in _find_runs(path)))
        names = [_name_run(path) for path in paths]
        with self._lock:
            for path in paths:
                if path not in self._known:
                    self._known[path] = Index(RunReader(path))
            return {
                name if names.count(name) == 1 else f"{path.parent.name}~{name}": self._known[path]
                for name, path in zip(names, paths, strict=True)
            }

    def run(self, name: str) -> Index:
        """Return the index of the run with this name. Raises StoreError if there is none."""
        index = self.runs().get(name)
        if index is None:
            raise StoreError(f"there is no run '{name[:64]}' here")
        return index


def _find_runs(path: Path) -> list[Path]:
    """Return `[path]` if it is a run, else the runs in it. Skips links such as runs/latest, which repeat a run.

    A pipeline is replaced by its stages that have begun.
    """
    if is_pipeline(path):
        return find_begun_stages(path)
    if (path / CONFIG).is_file():
        return [path]
    folders = [folder for folder in sorted(path.iterdir()) if not folder.is_symlink() and (folder / CONFIG).is_file()]
    return [run for folder in folders for run in (find_begun_stages(folder) if is_pipeline(folder) else [folder])]


def _name_run(run: Path) -> str:
    """Return the name of a run's folder, for a stage with its pipeline's name in front."""
    pipeline = find_pipeline(run)
    return f"{pipeline.name}~{run.name}" if pipeline else run.name
