"""Runs, finished or live, as tables in Arrow or pandas, each read on first use."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from analysis import flatten
from analysis.columns import TABLES
from arena.errors import ConfigError, StoreError
from arena.plain import printable
from arena.store.lines import LogError
from arena.store.losses import find_incomplete_deals
from arena.store.reader import FolderReader, RunReader
from arena.store.stages import find_pipeline, resolve_newest_run
from games.names import nearest

Names = Collection[str] | None
"""Names to select; None selects all."""


@dataclass(frozen=True)
class Frames:
    """Tables of one or several runs as pandas frames: runs, iterations, matches, seats, turns, messages, tokens.

    `load` creates it. `analysis.columns.TABLES` documents the columns. A live run's table contains what was logged when
    the table was first read; call `load` again for newer data.
    """

    readers: Mapping[str, RunReader]
    """Reader of each run, by the run's name."""
    numbers: Mapping[str, Sequence[int]]
    """Iterations whose match log is read, by run."""
    chosen: Collection[int] | None = None
    """Iterations to select; None selects all, including those without a match log."""
    games: Names = None
    of_seats: Names = None
    policies: Names = None

    def table(self, name: str, columns: Names = None) -> Any:
        """Return the table `name` as an Arrow table with these columns. Reads only the log fields that they need.

        Raises StoreError, with the nearest name, for an unknown table or column.

        >>> log.table("turns", ["role", "advantage"]).num_columns
        2
        """
        if name not in TABLES:
            raise StoreError(
                f"there is no table '{_abbreviate(name)}'{nearest(name, TABLES)} (tables: {', '.join(TABLES)})"
            )
        found = self.select_existing(name, columns)
        if columns is None:
            return found
        for column in columns:
            if column not in found.column_names:
                hint = nearest(column, map(printable, found.column_names))
                raise StoreError(f"{name} has no column '{_abbreviate(column)}'{hint}")
        return found.select(list(columns))

    def select_existing(self, name: str, columns: Names) -> Any:
        """Return the table `name` as an Arrow table with at least those of `columns` that exist.

        >>> log.select_existing("matches", ["status", "nothing"]).column_names
        ['run', 'match', 'iteration', 'game', 'status']
        """
        return self._build_run_table(name) if name in ("runs", "iterations") else self._read_log_table(name, columns)

    def frame(self, name: str, columns: Names = None) -> pd.DataFrame:
        """Return the table `name` with these columns as a pandas frame of Arrow types. Raises StoreError as `table`.

        >>> log.frame("turns", ["role", "valid"]).groupby("role")["valid"].mean().index.tolist()
        ['the_opener', 'the_responder']
        """
        frame: pd.DataFrame = self.table(name, columns).to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Table with a row per run: name, path, start time, Arena's version, and settings as `config.…`."""
        return self.frame("runs")

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """Table with a row per iteration: run, iteration and its metrics, nested names joined by dots."""
        return self.frame("iterations")

    @cached_property
    def matches(self) -> pd.DataFrame:
        """Table with a row per match, including failed ones, with the game's own figures as `report.…`."""
        return self.frame("matches")

    @cached_property
    def complete(self) -> pd.DataFrame:
        """Rows of `matches` for statistics: finished matches, without deals in which a match never finished."""
        matches, incomplete = self.matches, set[tuple[str, int, str, int]]()
        for run, run_matches in matches.groupby("run") if (matches["status"] == "failed").any() else ():
            deals = zip(
                [str(run)] * len(run_matches),
                run_matches["iteration"],
                run_matches["game"],
                run_matches["seed"],
                strict=True,
            )
            incomplete |= find_incomplete_deals(zip(deals, run_matches["match"], run_matches["status"], strict=True))
        finished = matches[matches["status"] == "finished"]
        if not incomplete:
            return finished
        deals = zip(finished["run"], finished["iteration"], finished["game"], finished["seed"], strict=True)
        return finished[[deal not in incomplete for deal in deals]]

    @cached_property
    def seats(self) -> pd.DataFrame:
        """Table with a row per seat of each match: role, policy, `trained`, and payoff (null in failed matches)."""
        return self.frame("seats")

    @cached_property
    def turns(self) -> pd.DataFrame:
        """Table with a row per turn: action, texts, rewards, and `advantage`, which is null before credit."""
        return self.frame("turns")

    @cached_property
    def messages(self) -> pd.DataFrame:
        """Table with a row per message, with the seat that read it and the turn before which it was read."""
        return self.frame("messages")

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """Table with a row per token that a seat's model read or sampled, with its log probability."""
        return self.frame("tokens")

    def _build_run_table(self, name: str) -> Any:
        """Return the table `runs`, from environment files, or `iterations`, from metrics, as an Arrow table."""
        rows = [row for run, reader in self.readers.items() for row in self._make_rows(name, run, reader)]
        return _make_table(rows, TABLES[name])

    def _make_rows(self, name: str, run: str, reader: RunReader) -> Iterable[dict[str, Any]]:
        if name == "runs":
            return [_make_run_row(run, reader)]
        rows = (row for row in reader.metrics() if self.chosen is None or row["iteration"] in self.chosen)
        return [{"run": run, **dict(_flatten(row))} for row in rows]

    def _read_log_table(self, name: str, columns: Names) -> Any:
        """Return a table from the match logs: read, filter and flatten each iteration, then join the results."""
        nested = next((column for column in ("report", "rewards") if column in flatten.NEEDS[name]), "")
        names = {*TABLES[name].names, nested} if columns is None else {*columns}
        needs_nested = nested and any(column.startswith(nested.removesuffix("s")) for column in names - {"reward"})
        by_turn = self.of_seats is not None or self.policies is not None
        columns_to_read = names | ({nested} if needs_nested else set()) | ({"seat", "policy"} if by_turn else set())
        parts = [
            part.append_column("run", pa.repeat(run, len(part)))
            for run, numbers in self.numbers.items()
            for number in numbers
            if (part := self._read_iteration(name, columns_to_read, self.readers[run], number)) is not None
        ]
        joined = pa.concat_tables(parts) if parts else TABLES[name].empty_table()
        table = pa.table({f.name: joined[f.name].cast(f.type) for f in TABLES[name] if f.name in joined.column_names})
        if needs_nested and nested in joined.column_names:
            spread = (
                _parse_reports(joined["report"])
                if nested == "report"
                else flatten.spread_names(joined["rewards"], "reward.")
            )
            for column, values in spread.items():
                table = table.append_column(column, values)
        return table

    def _read_iteration(self, name: str, columns: Collection[str], reader: RunReader, number: int) -> Any:
        """Return one iteration's rows of a table, filtered by game, seat and policy; None if no game matches."""
        if self.games is not None:
            games = reader.log.table(number, ["id", "game"])["game"]
            if not pc.any(_is_in(games, self.games)).as_py():
                return None
        log = reader.log.table(number, flatten.list_leaves(name, columns))
        if self.games is not None:
            log = log.filter(_is_in(log["game"], self.games))
        if name == "turns":
            table = flatten.turns(log, reader.log.credit_table(number))
        elif name == "tokens" and {*flatten.TOKEN_CREDIT} & {*columns}:
            credit_columns = ["match", "turn", "advantage", *flatten.TOKEN_CREDIT.values()]
            table = flatten.add_token_credit(
                flatten.tokens(log), reader.log.credit_table(number, credit_columns), log["id"]
            )
        else:
            table = getattr(flatten, name)(log)
        if name != "matches":
            for column, selection in (("seat", self.of_seats), ("policy", self.policies)):
                table = table if selection is None else table.filter(_is_in(table[column], selection))
        return table


def load(
    runs: str | Path | Sequence[str | Path],
    *,
    iterations: Collection[int] | None = None,
    games: Names = None,
    seats: Names = None,
    policies: Names = None,
) -> Frames:
    """Load one or several runs as tables, which are read on first use. A pipeline's path loads its newest stage.

    `iterations` and `games` select matches; `seats` and `policies` select rows of seats, turns, messages and tokens.
    Raises StoreError if a path is not a run or a run is damaged, and ConfigError if a selection is a single text
    instead of a collection.

    >>> load("runs/latest", iterations=range(2), seats=["opener"]).turns["seat"].unique().tolist()
    ['opener']
    """
    for option, names in {"games": games, "seats": seats, "policies": policies}.items():
        if isinstance(names, str):  # its characters would be taken as names
            raise ConfigError(f"{option} takes a list of names: write {option}=[{_abbreviate(names)!r}]")
    paths = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    readers = dict(zip(_run_names(paths), (RunReader(resolve_newest_run(path)) for path in paths), strict=True))
    numbers = {
        run: [number for number in reader.iterations() if iterations is None or number in iterations]
        for run, reader in readers.items()
    }
    return Frames(readers, numbers, None if iterations is None else {*iterations}, games, seats, policies)


def _run_names(paths: Sequence[Path]) -> list[str]:
    """Return the folders' names, or all paths if two names are equal. Raises StoreError for no or repeated paths."""
    if not paths:
        raise StoreError("no run to load: name one, such as runs/latest")
    resolved = [path.resolve() for path in paths]
    if repeated := next(
        (path for path, full_path in zip(paths, resolved, strict=True) if resolved.count(full_path) > 1), None
    ):
        raise StoreError(f"{repeated} is given twice: remove one")
    names = [path.name for path in resolved]
    return names if len({*names}) == len(names) else [str(path) for path in resolved]


_IGNORED_SETTINGS = ("name", "seed", "threads", "study")
"""Pipeline settings left out of the stages' settings, because runs of one arm may differ in them."""


def _make_run_row(run: str, reader: RunReader) -> dict[str, Any]:
    """Return a run's row of the table `runs`, without settings if its environment file lacks them."""
    environment = reader.environment()
    commands: list[dict[str, Any]] = environment.get("commands") or [{}]
    row = {
        "run": run,
        "path": str(reader.path),
        "started": _parse_time(commands[0].get("time")),
        "arena": (environment.get("versions") or {}).get("arena-selfplay"),
    }
    settings = dict(_flatten(environment.get("experiment") or {}, "config."))
    if (pipeline := find_pipeline(reader.path)) is not None:
        # Removed, so that earlier stages' weights have equal names in pipelines of other seeds.
        pipeline_prefix = f"{pipeline}/"
        settings = {key: v.removeprefix(pipeline_prefix) if isinstance(v, str) else v for key, v in settings.items()}
        settings |= _pipeline_settings(FolderReader(pipeline), reader.path.resolve().name)
    return row | settings


def _pipeline_settings(pipeline: FolderReader, stage: str) -> dict[str, Any]:
    """Return the pipeline's settings as written: `config.shared.…`, and `config.stages.…` up to this stage."""
    experiment = pipeline.environment().get("experiment") or {}
    stages = [entry for entry in experiment.get("stages") or () if isinstance(entry, dict)][: int(stage[:2])]
    shared = {name: value for name, value in experiment.items() if name not in (*_IGNORED_SETTINGS, "stages")}
    settings_by_stage = {str(entry.get("name")): {k: v for k, v in entry.items() if k != "name"} for entry in stages}
    return dict(_flatten({"shared": shared, "stages": settings_by_stage}, "config."))


def _parse_time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _make_table(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """Convert rows to an Arrow table: first the schema's columns, then the others, with inferred types."""
    names = dict.fromkeys([*schema.names, *(name for row in rows for name in row)])
    columns = {name: [row.get(name) for row in rows] for name in names}
    declared = {field.name: pa.array(columns.pop(field.name), field.type) for field in schema}
    return pa.table(declared | {name: to_array(values) for name, values in columns.items()})


def _parse_reports(texts: Any) -> dict[str, Any]:
    """Parse the matches' JSON reports, and return a column per figure, `report.NAME`, in order of first appearance.

    Each report is parsed on its own, so that a malformed text cannot affect the others. Raises LogError for an invalid
    report.
    """
    rows = [_parse_report(text) for text in texts.to_pylist()]
    names = dict.fromkeys(name for row in rows for name in row)
    return {f"report.{name}": to_array([row.get(name) for row in rows]) for name in names}


def _parse_report(text: str) -> dict[str, Any]:
    try:
        report = from_json(text)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        raise LogError("a match's report is not a JSON object: restore the log from a copy")
    return report


def to_array(values: Sequence[Any]) -> Any:
    """Convert values to an Arrow array of booleans, integers, floats or, failing that, text (JSON). None becomes null.

    >>> str(to_array([True, None]).type), str(to_array([1, 2.5, True]).type), to_array(["a", [1]]).to_pylist()
    ('bool', 'double', ['a', '[1]'])
    """
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return pa.array(values, pa.bool_())
    if known and all(type(value) is int and abs(value) < 2**63 for value in known):
        return pa.array(values, pa.int64())
    if all(isinstance(value, int | float) for value in known):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())


def is_numeric(column: pd.Series[Any]) -> bool:
    """Return True if a pandas column holds numbers or booleans.

    >>> [is_numeric(log.matches[name]) for name in ("turns", "report.deal", "report.end")]
    [True, True, False]
    """
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _is_in(column: Any, selection: Collection[str]) -> Any:
    return pc.is_in(column, value_set=pa.array(sorted(selection), pa.string()))


def _abbreviate(name: str) -> str:
    return printable(name[:64])
