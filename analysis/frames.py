"""Runs, finished or live, as tables: Arrow from the log to pandas, each read when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
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
from arena.store.losses import incomplete_deals
from arena.store.reader import RunReader

Names = Collection[str] | None
"""Only these; None is all."""


@dataclass(frozen=True)
class Frames:
    """Some runs as tables of Arrow's types: `runs`, `iterations`, `matches`, `seats`, `turns`, `messages`, `tokens`.

    `analysis.columns.TABLES` says what every column means. Of a live run a table is what the log held when it was read:
    `load` again for what came since.
    """

    readers: Mapping[str, RunReader]
    """By the name of the run."""
    numbers: Mapping[str, Sequence[int]]
    """By run, the iterations whose matches are read."""
    chosen: Collection[int] | None = None
    """Only these; None is all, those without a match log too."""
    games: Names = None
    of_seats: Names = None
    policies: Names = None

    def table(self, name: str, columns: Names = None) -> Any:
        """One of the tables as an Arrow table, of these of its columns, with no more read than they need.

        StoreError, with the nearest name, for a table or a column that there is not.

        >>> log.table("turns", ["role", "advantage"]).num_columns
        2
        """
        if name not in TABLES:
            raise StoreError(
                f"there is no table '{_abbreviated(name)}'{_near(name, TABLES)} (tables: {', '.join(TABLES)})"
            )
        found = self.among(name, columns)
        if columns is None:
            return found
        for column in columns:
            if column not in found.column_names:
                raise StoreError(f"{name} has no column '{_abbreviated(column)}'{_near(column, found.column_names)}")
        return found.select(list(columns))

    def among(self, name: str, columns: Names) -> Any:
        """One of the tables with at least those of its columns that are among these, which it need not have.

        >>> log.among("matches", ["status", "nothing"]).column_names
        ['run', 'match', 'iteration', 'game', 'status']
        """
        return self._small(name) if name in ("runs", "iterations") else self._logged(name, columns)

    def frame(self, name: str, columns: Names = None) -> pd.DataFrame:
        """The same in pandas, with Arrow's types.

        >>> log.frame("turns", ["role", "valid"]).groupby("role")["valid"].mean().index.tolist()
        ['the_opener', 'the_responder']
        """
        frame: pd.DataFrame = self.table(name, columns).to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row per run: where it is, when it began, its experiment as `config.…`."""
        return self.frame("runs")

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """A row per iteration: its metrics, nested names joined by dots."""
        return self.frame("iterations")

    @cached_property
    def matches(self) -> pd.DataFrame:
        """A row per match, failed ones included, with the game's own figures as `report.…`."""
        return self.frame("matches")

    @cached_property
    def complete(self) -> pd.DataFrame:
        """The rows of `matches` that figures are about: finished, and of deals of which no match was given up."""
        matches, lost = self.matches, set[tuple[str, int, str, int]]()
        for run, own in matches.groupby("run") if (matches["status"] == "failed").any() else ():
            deals = zip([str(run)] * len(own), own["iteration"], own["game"], own["seed"], strict=True)
            lost |= incomplete_deals(zip(deals, own["match"], own["status"], strict=True))
        finished = matches[matches["status"] == "finished"]
        if not lost:
            return finished
        deals = zip(finished["run"], finished["iteration"], finished["game"], finished["seed"], strict=True)
        return finished[[deal not in lost for deal in deals]]

    @cached_property
    def seats(self) -> pd.DataFrame:
        """A row per seat of a match: who sat there, and what it was paid."""
        return self.frame("seats")

    @cached_property
    def turns(self) -> pd.DataFrame:
        """A row per turn with its rewards, and `advantage` where credit was given."""
        return self.frame("turns")

    @cached_property
    def messages(self) -> pd.DataFrame:
        """A row per message that a seat read before it moved."""
        return self.frame("messages")

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """A row per token of a model's stream, read or sampled."""
        return self.frame("tokens")

    def _small(self, name: str) -> Any:
        """A table that is no part of the match log."""
        rows = [row for run, reader in self.readers.items() for row in self._rows(name, run, reader)]
        return _table(rows, TABLES[name])

    def _rows(self, name: str, run: str, reader: RunReader) -> Iterable[dict[str, Any]]:
        if name == "runs":
            return [_about(run, reader)]
        rows = (row for row in reader.metrics() if self.chosen is None or row["iteration"] in self.chosen)
        return [{"run": run, **dict(_flat(row))} for row in rows]

    def _logged(self, name: str, columns: Names) -> Any:
        """A table of the match log: iteration by iteration made flat and filtered, then put together."""
        nested = next((column for column in ("report", "rewards") if column in flatten.NEEDS[name]), "")
        wanted = {*TABLES[name].names, nested} if columns is None else {*columns}
        grown = nested and any(column.startswith(nested.removesuffix("s")) for column in wanted - {"reward"})
        needed = wanted | ({nested} if grown else set()) | ({"seat", "policy"} if self._by_turn else set())
        parts = [
            part.append_column("run", pa.repeat(run, len(part)))
            for run, numbers in self.numbers.items()
            for k in numbers
            if (part := self._part(name, needed, self.readers[run], k)) is not None
        ]
        whole = pa.concat_tables(parts) if parts else TABLES[name].empty_table()
        table = pa.table({f.name: whole[f.name].cast(f.type) for f in TABLES[name] if f.name in whole.column_names})
        if grown and nested in whole.column_names:
            more = _reports(whole["report"]) if nested == "report" else flatten.named(whole["rewards"], "reward.")
            for column, values in more.items():
                table = table.append_column(column, values)
        return table

    @property
    def _by_turn(self) -> bool:
        return self.of_seats is not None or self.policies is not None

    def _part(self, name: str, columns: Collection[str], reader: RunReader, k: int) -> Any:
        """One iteration's rows; None where no game is wanted."""
        if self.games is not None:
            known = reader.log.table(k, ["id", "game"])["game"]
            if not pc.any(_among(known, self.games)).as_py():
                return None
        log = reader.log.table(k, flatten.leaves(name, columns))
        if self.games is not None:
            log = log.filter(_among(log["game"], self.games))
        if name == "turns":
            table = flatten.turns(log, reader.log.credit_table(k))
        elif name == "tokens" and {*flatten.TOKEN_CREDIT} & {*columns}:
            wanted = ["match", "turn", "advantage", *flatten.TOKEN_CREDIT.values()]
            table = flatten.credited(flatten.tokens(log), reader.log.credit_table(k, wanted), log["id"])
        else:
            table = getattr(flatten, name)(log)
        if name != "matches":
            for column, chosen in (("seat", self.of_seats), ("policy", self.policies)):
                table = table if chosen is None else table.filter(_among(table[column], chosen))
        return table


def load(
    runs: str | Path | Sequence[str | Path],
    *,
    iterations: Collection[int] | None = None,
    games: Names = None,
    seats: Names = None,
    policies: Names = None,
) -> Frames:
    """A run, or several beside each other, as tables; StoreError, one line, for what is no run or damaged.

    They hold only matches of these `iterations` and `games`, and of them only seats, turns, messages and tokens
    of these `seats` and `policies`: lists or sets of names, and ConfigError for a bare one.

    >>> load("runs/latest", iterations=range(2), seats=["opener"]).turns["seat"].unique().tolist()
    ['opener']
    """
    for option, names in {"games": games, "seats": seats, "policies": policies}.items():
        if isinstance(names, str):  # whose characters would be taken for the names
            raise ConfigError(f"{option} are several names: write {option}=[{_abbreviated(names)!r}]")
    paths = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    readers = dict(zip(_names(paths), map(RunReader, paths), strict=True))
    numbers = {
        run: [k for k in reader.iterations() if iterations is None or k in iterations]
        for run, reader in readers.items()
    }
    return Frames(readers, numbers, None if iterations is None else {*iterations}, games, seats, policies)


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of the runs: those of their folders, or their paths where folders are called alike."""
    if not paths:
        raise StoreError("there is no run to load: name one, such as runs/latest")
    whole = [path.resolve() for path in paths]
    if twin := next((path for path, same in zip(paths, whole, strict=True) if whole.count(same) > 1), None):
        raise StoreError(f"{twin} is given twice: take one out")
    names = [path.name for path in whole]
    return names if len({*names}) == len(names) else [str(path) for path in whole]


def _about(run: str, reader: RunReader) -> dict[str, Any]:
    """The row of a run; what an older Arena did not note is missing."""
    about = reader.environment()
    commands: list[dict[str, Any]] = about.get("commands") or [{}]
    known = {
        "run": run,
        "path": str(reader.path),
        "started": _instant(commands[0].get("time")),
        "arena": (about.get("versions") or {}).get("arena-selfplay"),
    }
    return known | dict(_flat(about.get("experiment") or {}, "config."))


def _instant(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _table(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """Rows with names of their own, those of the schema first."""
    names = dict.fromkeys([*schema.names, *(name for row in rows for name in row)])
    columns = {name: [row.get(name) for row in rows] for name in names}
    own = {field.name: pa.array(columns.pop(field.name), field.type) for field in schema}
    return pa.table(own | {name: typed(values) for name, values in columns.items()})


def _reports(texts: Any) -> dict[str, Any]:
    """The games' own figures, a column each in the order in which they first appear; LogError for what is no report.

    Text by text, as no text may change how the next one is read.
    """
    rows = [_report(text) for text in texts.to_pylist()]
    names = dict.fromkeys(name for row in rows for name in row)
    return {f"report.{name}": typed([row.get(name) for row in rows]) for name in names}


def _report(text: str) -> dict[str, Any]:
    try:
        report = from_json(text)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        raise LogError("a match's report is no JSON object: restore the log from a copy")
    return report


def typed(values: Sequence[Any]) -> Any:
    """Values as an Arrow array: truth values where all are, numbers where all are either, else text; with gaps.

    >>> str(typed([True, None]).type), str(typed([1, 2.5, True]).type), typed(["a", [1]]).to_pylist()
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


def numeric(column: pd.Series[Any]) -> bool:
    """Return True if a column holds numbers or truth values.

    >>> [numeric(log.matches[name]) for name in ("turns", "report.deal", "report.end")]
    [True, True, False]
    """
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _among(column: Any, chosen: Collection[str]) -> Any:
    return pc.is_in(column, value_set=pa.array(sorted(chosen), pa.string()))


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:64], list(known), n=1)
    return f" — did you mean '{printable(near[0])}'?" if near else ""


def _abbreviated(name: str) -> str:
    return printable(name[:64])
