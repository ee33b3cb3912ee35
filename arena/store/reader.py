"""Reading a run folder, finished or live, without loading the learner: only JSON, Parquet and text."""

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arena.errors import StoreError
from arena.store.arrow import match_rows, match_table
from arena.store.blobs import Blobs
from arena.store.files import CONFIG, explained, require_run
from arena.store.lines import LogError, read_lines
from arena.store.manifest import digest
from arena.store.older import completed, iteration_of, lacking, leaves, row_brought_up, spared
from arena.store.schema import CREDIT, MATCHES, SCHEMA_VERSION, CreditRow, check_version
from games.plain_files import open_plain, read_plain

ENVIRONMENT, SEAL = "environment.json", "sha256"
"""The file of the run's environment, and under which key that ends with the hash of all else in it."""
LARGEST = 4 * 10**6
"""Bytes of a run's config, and of its environment."""
FIELDS = {"experiment": dict, "versions": dict, "files": dict, "commands": list}
"""What an environment holds where it has it."""
_LOG_FILE = re.compile(r"(\d{4}|[1-9]\d{4,8})\.(jsonl|parquet|credit\.parquet)", re.ASCII)


def log_path(folder: Path, iteration: int, kind: str) -> Path:
    """The file of an iteration's log: kind `jsonl` (open), `parquet` (sealed) or `credit.parquet`."""
    return folder / f"{iteration:04d}.{kind}"


def logged_in(name: str) -> tuple[int, str] | None:
    """Iteration and kind of the log's file of this name; None where the log names none so."""
    match = _LOG_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def read_parquet(
    path: Path, schema: Any, columns: Collection[str], sparse: bool = False, ids: Collection[str] | None = None
) -> Any:
    """Columns of the sealed file of that schema as an Arrow table; LogError when it is damaged or too new.

    A `sparse` table, too, lacks the optional columns that the file lacks. With `ids`, rows of these matches alone: the
    file is ordered by match, and only the groups of rows are read that may hold one of them.
    """
    try:
        open_plain(path).close()  # a pipe would be waited for
        file = pq.ParquetFile(path, page_checksum_verification=True)
        written = file.schema_arrow
        absent = lacking(schema, written, check_version(written.metadata, path), path)
        groups = [k for k in range(file.num_row_groups) if ids is None or _may_hold(file.metadata.row_group(k), ids)]
        table = file.read_row_groups(groups, columns=leaves(written, columns))
        table = completed(table, spared(schema, absent) if sparse else schema, columns, absent)
        return table if ids is None else table.filter(pc.field(schema.names[0]).isin(sorted(ids)))
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise LogError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _may_hold(group: Any, ids: Collection[str]) -> bool:
    """Return True unless the first column's bounds leave all of these matches out."""
    bounds = group.column(0).statistics
    return bounds is None or not bounds.has_min_max or any(bounds.min <= id <= bounds.max for id in ids)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics log, [] without one; LogError for a line that is none."""
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        iteration = row.get("iteration")
        if not isinstance(iteration, int) or isinstance(iteration, bool) or not 0 <= iteration < 10**9:
            raise LogError(f"{path}:{number}: this line names no iteration: restore the file from a copy")
    return rows


class LogReader:
    """The matches of a log folder: rows as `MatchRecord.to_json` made them, open and sealed alike."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder
        self.blobs = Blobs(folder / "blobs")
        """The images of the matches."""

    def iterations(self) -> list[int]:
        """Numbers of the iterations that have a log, ascending."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        found = [logged_in(file.name) for file in files]
        return sorted({one[0] for one in found if one and one[1] != "credit.parquet"})

    def read(self, iteration: int, streams: bool = True, ids: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Rows of one iteration, of all its matches or of some, ordered by id; LogError for a damaged log."""
        wanted = [name for name in MATCHES.names if streams or name != "streams"]
        rows = match_rows(self._table(iteration, wanted, sparse=True, ids=ids))
        return sorted(rows, key=lambda row: str(row["id"]))

    def table(self, iteration: int, columns: Collection[str], ids: Collection[str] | None = None) -> Any:
        """Columns of one iteration, `turns.seat` being one, as an Arrow table ordered by id; LogError as in `read`."""
        return self._table(iteration, columns, ids=ids).sort_by("id")

    def images(self, iteration: int) -> set[str]:
        """Hashes of the images that the matches of one iteration show."""
        column = self.table(iteration, ["id", "turns.messages.images"])["turns"].combine_chunks()
        for name in ("messages", "images", "hash"):
            column = column.flatten().field(name)
        return set(column.to_pylist())

    def credit(self, iteration: int) -> list[CreditRow]:
        """Reward and advantage of each turn; [] where credit has not been assigned."""
        return [CreditRow(**row) for row in self.credit_table(iteration).to_pylist()]

    def credit_table(
        self, iteration: int, columns: Collection[str] = CreditRow._fields, ids: Collection[str] | None = None
    ) -> Any:
        """Return what credit gave each turn, or those of some matches, as an Arrow table; empty where there is none.

        Figures of single tokens (`advantages`, `ratios`, `gaps`) where the columns name them.
        """
        path = log_path(self.folder, iteration, "credit.parquet")
        known = path.exists()
        return read_parquet(path, CREDIT, columns, ids=ids) if known else CREDIT.empty_table().select([*columns])

    def _table(
        self, iteration: int, columns: Collection[str], sparse: bool = False, ids: Collection[str] | None = None
    ) -> Any:
        """Columns of the sealed file or, without one, of the open file."""
        table = self._sealed(iteration, columns, sparse, ids)
        if table is None and not (rows := self.open_rows(iteration)):
            # It may have been sealed, and its open file removed, between the two looks.
            table = self._sealed(iteration, columns, sparse, ids)
        if table is not None:
            return table
        wanted = rows if ids is None else [row for row in rows if row.get("id") in ids]
        return self._open(iteration, wanted, columns, sparse)

    def _open(self, iteration: int, rows: Sequence[dict[str, Any]], columns: Collection[str], sparse: bool) -> Any:
        """Columns of the open file's rows, as of a sealed one; LogError for a row that does not fit the schema."""
        try:
            table = match_table(rows)
        except LogError as error:
            path = log_path(self.folder, iteration, "jsonl")
            raise LogError(f"{path}: {error}: restore the file from a copy") from None
        if sparse:
            return table.select([name for name in table.column_names if name in columns])
        return completed(table, MATCHES, columns)

    def _sealed(self, iteration: int, columns: Collection[str], sparse: bool, ids: Collection[str] | None) -> Any:
        path = log_path(self.folder, iteration, "parquet")
        if not os.path.lexists(path):
            return None
        table = read_parquet(path, MATCHES, columns, sparse, ids)
        if "id" in columns and pc.count_distinct(table["id"]).as_py() != len(table):
            raise LogError(f"{path} has a match twice: restore the log from a copy")
        return table

    def open_rows(self, iteration: int) -> list[dict[str, Any]]:
        """Rows of the open file as they were written; [] without one."""
        path = log_path(self.folder, iteration, "jsonl")
        rows = []
        for number, row in enumerate(read_lines(path), start=1):
            version = row.pop("schema", None)
            if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
                raise LogError(f"{path}:{number}: not of schema {SCHEMA_VERSION}: upgrade arena-selfplay")
            rows.append(row_brought_up(row, version))
        return rows


class RunReader:
    """A run folder as its readers see it: config, environment, matches, credit, metrics."""

    def __init__(self, path: str | Path) -> None:
        """StoreError when there is no run folder at `path`."""
        self.path = require_run(Path(path))
        self.log = LogReader(self.path / "log")

    def config(self) -> str:
        """The text of the exact config."""
        try:
            return self._bytes(CONFIG).decode("utf-8")
        except UnicodeDecodeError:
            raise StoreError(f"{self.path / CONFIG} is damaged: it should be text in UTF-8") from None

    def environment(self) -> dict[str, Any]:
        """Versions and machine the run began with, its commands; StoreError when the file is damaged or was edited."""
        path, text = self.path / ENVIRONMENT, self._bytes(ENVIRONMENT)
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise StoreError(f"{path} is damaged: it should be one JSON object")
        seal = body.pop(SEAL, None)
        if seal != digest(body) if seal is not None else not self._of_an_older_arena():
            raise StoreError(f"{path} is not as it was written: restore it from a copy")
        for name, kind in FIELDS.items():
            if body.get(name) is not None and not isinstance(body[name], kind):
                raise StoreError(f"{path} is damaged: its {name} should be a {kind.__name__}: restore it from a copy")
        if not all(isinstance(command, dict) for command in body.get("commands") or ()):
            raise StoreError(f"{path} is damaged: a command should be a dict: restore it from a copy")
        return body

    def _bytes(self, name: str) -> bytes:
        path = self.path / name
        with explained(path, "reading"):
            return read_plain(path, LARGEST)

    def _of_an_older_arena(self) -> bool:
        """Return True if the folder has nothing of what came with the environment's hash."""
        return not (self.path / "roles").exists() and not any(self.path.glob("checkpoints/*/contents.json"))

    def iterations(self) -> list[int]:
        """Numbers of the iterations that have a log, ascending."""
        return self.log.iterations()

    def matches(self, streams: bool = True) -> Iterator[dict[str, Any]]:
        """Every match's row, by iteration and id; without the token streams where not wanted."""
        for iteration in self.iterations():
            yield from self.log.read(iteration, streams)

    def table(self, columns: Collection[str]) -> Any:
        """Columns of every match, `turns.seat` being one, as an Arrow table by iteration and id."""
        none = completed(MATCHES.empty_table(), MATCHES, columns)
        return pa.concat_tables([none, *(self.log.table(iteration, columns) for iteration in self.iterations())])

    def match(self, id: str) -> dict[str, Any]:
        """One match's row; StoreError, with the nearest id, where there is none."""
        iteration = iteration_of(id)
        for row in [] if iteration is None else self.log.read(iteration, ids=[id]):
            return row
        near = get_close_matches(id[:64], self.table(["id"])["id"].to_pylist(), n=1)
        hint = f" — did you mean '{near[0]}'?" if near else ""
        raise StoreError(f"{self.path} has no match '{id[:64]}'{hint}")

    def credit(self, iteration: int) -> list[CreditRow]:
        """Reward and advantage of each turn of an iteration; [] where credit has not been assigned."""
        return self.log.credit(iteration)

    def credit_table(self) -> Any:
        """Reward and advantage of each turn of the run as an Arrow table, by iteration."""
        none = CREDIT.empty_table().select([*CreditRow._fields])
        return pa.concat_tables([none, *map(self.log.credit_table, self.iterations())])

    def metrics(self) -> list[dict[str, Any]]:
        """One row per iteration, oldest first."""
        return read_metrics(self.path / "metrics.jsonl")
