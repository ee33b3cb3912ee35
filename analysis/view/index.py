"""Index of a run's matches: a short row each, to list, filter and sort them without their texts.

A sealed iteration is complete and stored as Parquet; an open one is still being written. An iteration is read again
only if its files change, and each line of an open one is read once. 10⁶ turns take about ten MB. No request waits for
the whole log: each reads for a limited time and reports how many iterations are left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from threading import RLock
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis import flatten
from analysis.view.tail import Tail
from arena.errors import StoreError
from arena.plain import printable
from arena.store.arrow import complete_table, matches_to_table
from arena.store.contents import METRICS, PANEL
from arena.store.feed import FeedReader, LiveMatch
from arena.store.reader import RunReader, log_path, parse_log_name
from arena.store.schema import MATCHES

MATCH_COLUMNS = ("id", "iteration", "game", "status", "reason", "parent", "parent_turn", "source", "group", "seconds")
COLUMNS = (*MATCH_COLUMNS, "payoffs", "seats", "turns.index")
NOTES = "notes.jsonl"
SCALE_QUANTILE = 0.95
_CREDIT = "credit.parquet"
PATIENCE = 0.2
"""Seconds that a request spends reading."""
Stamp = tuple[tuple[int, int], ...]


class Index:
    """Index of one run's matches, a short row each. `refresh` reads new matches, `table` returns those read so far."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self.lock = RLock()
        self._parts: dict[int, tuple[Stamp, Any]] = {}
        self.damaged: dict[int, str] = {}
        """Error of each iteration that cannot be read."""
        self._names: dict[int, dict[str, set[str]]] = {}
        self._tails: dict[int, Tail] = {}
        self._stamps: dict[int, Stamp] = {}
        self._feed = FeedReader(reader.path)

    def fingerprint(self) -> str:
        """Return a text that changes when the run's files change or its process starts or ends. The page polls it."""
        names = (METRICS, PANEL, NOTES, "run.pid")
        stamps = [(name, *_read_stamp(self.reader.path / name)) for name in names]
        return f"{hash((tuple(stamps), tuple(sorted(self._list_files().items()))))}"

    def refresh(self, patience: float = PATIENCE) -> int:
        """Read more of the log, newest iterations first, for `patience` seconds, and return the number left unread.

        With zero `patience`, only updates the list of iterations. Stores the errors of damaged iterations in `damaged`.
        """
        start = monotonic()
        with self.lock:
            self._stamps = self._list_files()
            for removed in self._parts.keys() - self._stamps.keys():
                del self._parts[removed]
            unread = [k for k, stamp in self._stamps.items() if self._parts.get(k, ((), None))[0] != stamp]
            unread.sort(reverse=True)
            while unread and patience:
                number = unread[0]
                try:
                    part = self._read_iteration(number)
                    self.damaged.pop(number, None)
                except StoreError as error:  # only this iteration is damaged
                    part, self.damaged[number] = _make_empty(), printable(str(error))
                done = number not in self._tails or not self._tails[number].has_more
                self._parts[number], self._names[number] = (
                    (self._stamps[number] if done else (), part),
                    _collect_names(part),
                )
                unread = unread[done:]
                if monotonic() - start > patience:
                    break
            return len(unread)

    def table(self) -> Any:
        """Return the short rows read so far as an Arrow table: the newest iteration first, each in order of its log.

        Columns are those of `MATCH_COLUMNS` (`id` as `match`), seats, payoffs, turns (their number), paid (mean payoff
        of trained seats), and low and high (lowest and highest advantage).
        """
        with self.lock:
            parts = [part for _, (_, part) in sorted(self._parts.items(), reverse=True)]
        return pa.concat_tables(parts) if parts else _make_empty()

    def list_names(self) -> dict[str, list[str]]:
        """Return the distinct `game`, `status` and `policy` values of the matches read so far, sorted, to filter by."""
        with self.lock:
            names_by_iteration = list(self._names.values())
        return {
            name: sorted(set().union(*(iteration_names[name] for iteration_names in names_by_iteration)))
            for name in ("game", "status", "policy")
        }

    def find_scale(self) -> float:
        """Return the 95 % quantile over matches of their largest absolute advantage; 0.0 before credit is assigned."""
        table = self.table()
        ends = [np.abs(table[name].to_numpy(zero_copy_only=False).astype(float)) for name in ("low", "high")]
        sizes = np.fmax(*ends)
        known = sizes[np.isfinite(sizes)]
        return float(np.quantile(known, SCALE_QUANTILE)) if len(known) else 0.0

    def iterations(self) -> list[int]:
        """Return the iterations that have a log, ascending, as of the last `refresh`."""
        return sorted(self._stamps or self._list_files())

    def find_open_match(self, iteration: int, id: str) -> dict[str, Any] | None:
        """Return the log row of a match of an open iteration; None if the iteration is sealed or has no such match."""
        with self.lock:
            tail = None if self.is_sealed(iteration) else self._get_tail(iteration)
            return tail.find_row(id) if tail else None

    def list_in_flight(self) -> dict[str, LiveMatch]:
        """Return the matches in progress by id, from the run's turn feed, without those already logged."""
        with self.lock:
            self._feed.refresh()
            return {
                id: match
                for id, match in self._feed.matches.items()
                if not match.over and not self._is_logged(match.head.iteration, id)
            }

    def find_playing(self, id: str) -> dict[str, Any] | None:
        """Return the incomplete log row of a match in the run's turn feed; None if it is not there."""
        with self.lock:
            self._feed.refresh()
            return self._feed.row(id)

    def _is_logged(self, iteration: int, id: str) -> bool:
        tail = self._tails.get(iteration)
        return self.is_sealed(iteration) or (tail is not None and id in tail.places)

    def stamp(self, iteration: int) -> Stamp:
        """Return size and modification time of the iteration's files at the last `refresh`; () if it has none."""
        return self._stamps.get(iteration, ())

    def is_sealed(self, iteration: int) -> bool:
        """Return True if the iteration is complete and its log converted to Parquet."""
        return log_path(self.reader.log.folder, iteration, "parquet").exists()

    def _get_tail(self, number: int) -> Tail:
        return self._tails.setdefault(number, Tail(log_path(self.reader.log.folder, number, "jsonl")))

    def _list_files(self) -> dict[int, Stamp]:
        """Return size and modification time of each iteration's log files. Skips iterations that have only credit."""
        stamps_by_iteration: dict[int, list[tuple[str, tuple[int, int]]]] = {}
        try:
            entries: Iterable[os.DirEntry[str]] = os.scandir(self.reader.log.folder)
        except OSError:
            return {}
        for entry in entries:
            if parsed := parse_log_name(entry.name):
                stamps_by_iteration.setdefault(parsed[0], []).append((parsed[1], _read_stamp(entry.path)))
        return {
            k: tuple(s for _, s in sorted(parsed))
            for k, parsed in stamps_by_iteration.items()
            if {n for n, _ in parsed} != {_CREDIT}
        }

    def _read_iteration(self, number: int) -> Any:
        """Return an iteration's short rows: all if it is sealed, else those read before and the next ones."""
        if self.is_sealed(number):
            self._tails.pop(number, None)
            credit = self.reader.log.credit_table(number, ["match", "advantage"])
            return _make_rows(self.reader.log.table(number, COLUMNS), _find_extremes(credit))
        tail = self._get_tail(number)
        new = _make_rows(_to_table(tail.read_new()), {})
        before = self._parts.get(number, ((), None))[1]
        return new if before is None or tail.has_restarted else pa.concat_tables([before, new])


def _read_stamp(path: Any) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_size, status.st_mtime_ns


def _collect_names(part: Any) -> dict[str, set[str]]:
    """Return the distinct games, statuses and policies in a part of the index, by column."""
    policies = pc.struct_field(pc.list_flatten(part["seats"].combine_chunks()), "policy")
    columns = {"game": part["game"], "status": part["status"], "policy": policies}
    return {name: set(pc.unique(column).to_pylist()) for name, column in columns.items()}


def _to_table(rows: list[dict[str, Any]]) -> Any:
    return complete_table(matches_to_table(rows), MATCHES, COLUMNS)


def _make_empty() -> Any:
    return _make_rows(_to_table([]), {})


def _find_extremes(credit: Any) -> Mapping[str, tuple[float, float]]:
    """Return the lowest and highest advantage of each match, by id."""
    if not len(credit):
        return {}
    found = credit.group_by("match").aggregate([("advantage", "min"), ("advantage", "max")])
    names = (found[name].to_pylist() for name in ("match", "advantage_min", "advantage_max"))
    return {match: (low, high) for match, low, high in zip(*names, strict=True)}


def _make_rows(log: Any, extremes: Mapping[str, tuple[float, float]]) -> Any:
    """Convert a log table to short rows, as `Index.table` has them. `extremes` comes from `_find_extremes`."""
    ids = log["id"].to_pylist()
    ends = [extremes.get(id, (None, None)) for id in ids]
    seats = flatten.seats(log)
    match_rows = pc.index_in(seats["match"], value_set=log["id"].combine_chunks()).to_numpy()
    payoff = seats["payoff"].to_numpy(zero_copy_only=False).astype(float)
    is_counted = np.isfinite(payoff) & seats["trained"].to_numpy(zero_copy_only=False).astype(bool)
    sums, counts = (np.bincount(match_rows[is_counted], w, len(ids)) for w in (payoff[is_counted], None))
    mean_payoffs = np.divide(sums, counts, where=counts > 0, out=np.full(len(ids), np.nan))
    columns = {name: log[name] for name in MATCH_COLUMNS if name != "id"}
    return pa.table(
        {"match": log["id"], **columns, "seats": log["seats"], "payoffs": log["payoffs"]}
        | {"turns": pc.list_value_length(log["turns"]), "paid": pa.array(mean_payoffs, from_pandas=True)}
        | {name: pa.array([end[k] for end in ends], pa.float64()) for k, name in enumerate(("low", "high"))}
    )
