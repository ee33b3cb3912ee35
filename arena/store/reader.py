"""Reading a run folder, finished or live, without loading the learner: only JSON, Parquet and text."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arena.errors import StoreError
from arena.store.files import CONFIG, explained, require_plain, require_run
from arena.store.lines import LogError, read_lines
from arena.store.manifest import digest
from arena.store.schema import (
    CREDIT,
    MATCHES,
    SCHEMA_VERSION,
    CreditRow,
    brought_up,
    check_version,
    leaves_at,
    match_rows,
    match_table,
    row_brought_up,
    schema_at,
)

ENVIRONMENT, SEAL = "environment.json", "sha256"
"""The file of the run's environment, and under which key that ends with the hash of all else in it."""
_LOG_FILE = re.compile(r"(\d{4,})\.(jsonl|parquet)")


def log_path(folder: Path, iteration: int, kind: str) -> Path:
    """The file of an iteration's log: kind `jsonl` (open), `parquet` (sealed) or `credit.parquet`."""
    return folder / f"{iteration:04d}.{kind}"


def read_parquet(path: Path, schema: Any, columns: Collection[str]) -> Any:
    """Columns of the sealed file of that schema as an Arrow table; LogError when it is damaged or too new."""
    try:
        require_plain(path)
        file = pq.ParquetFile(path, page_checksum_verification=True)
        version = check_version(file.schema_arrow.metadata, path)
        if not file.schema_arrow.equals(
            schema_at(schema, version)
        ):  # no checksum covers a Parquet file's footer, which names the columns
            raise LogError(f"{path} cannot be read: its columns are not those of a match log")
        leaves = leaves_at(schema, columns, version)
        return _narrowed(brought_up(file.read(columns=leaves), schema, columns), schema, columns)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise LogError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics log, [] without one; LogError for a line that is none."""
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        iteration = row.get("iteration")
        if not isinstance(iteration, int) or isinstance(iteration, bool) or not 0 <= iteration < 10**9:
            raise LogError(f"{path}:{number}: this line names no iteration: restore the file from a copy")
    return rows


def _narrowed(table: Any, schema: Any, columns: Collection[str]) -> Any:
    """Columns of a table that has at least these, typed and ordered as in the schema."""
    wanted = pa.schema(_fields(schema, columns))
    return table.select(wanted.names).cast(wanted)


def _fields(fields: Iterable[Any], columns: Collection[str]) -> Iterator[Any]:
    """The fields that are among the columns; a dot leads into the items of a list: `turns.seat`."""
    for field in fields:
        inner = [name.removeprefix(f"{field.name}.") for name in columns if name.startswith(f"{field.name}.")]
        if field.name in columns:
            yield field
        elif inner:
            item = field.type.value_field
            yield field.with_type(pa.list_(item.with_type(pa.struct(list(_fields(item.type, inner))))))


class LogReader:
    """The matches of a log folder: rows as `MatchRecord.to_json` made them, open and sealed alike."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder

    def iterations(self) -> list[int]:
        """Numbers of the iterations that have a log, ascending."""
        names = [file.name for file in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted({int(match[1]) for name in names if (match := _LOG_FILE.fullmatch(name))})

    def read(self, iteration: int, streams: bool = True, ids: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Rows of one iteration, of all its matches or of some, ordered by id; LogError for a damaged log."""
        table, rows = self._found(iteration, [name for name in MATCHES.names if streams or name != "streams"])
        if table is not None:
            rows = match_rows(table if ids is None else table.filter(pc.field("id").isin(sorted(ids))))
        else:
            rows = match_rows(match_table(rows))  # of an open file, too, there are none that do not fit the schema
            rows = [row for row in rows if ids is None or row["id"] in ids]
        return sorted(rows, key=lambda row: str(row["id"]))

    def table(self, iteration: int, columns: Collection[str]) -> Any:
        """Columns of one iteration, `turns.seat` being one, as an Arrow table ordered by id; LogError as in `read`."""
        table, rows = self._found(iteration, columns)
        return (_narrowed(match_table(rows), MATCHES, columns) if table is None else table).sort_by("id")

    def credit(self, iteration: int) -> list[CreditRow]:
        """What credit gave each turn; [] where it has not been assigned."""
        return [CreditRow(**row) for row in self.credit_table(iteration).to_pylist()]

    def credit_table(self, iteration: int) -> Any:
        """What credit gave each turn as an Arrow table; empty where it has not been assigned."""
        path = log_path(self.folder, iteration, "credit.parquet")
        return read_parquet(path, CREDIT, CREDIT.names) if path.exists() else CREDIT.empty_table()

    def _found(self, iteration: int, columns: Collection[str]) -> tuple[Any, list[dict[str, Any]]]:
        """The table of the sealed file or, without one, the rows of the open file."""
        table = self._sealed(iteration, columns)
        rows = self.open_rows(iteration) if table is None else []
        if table is None and not rows:
            # An iteration may have been sealed, and its open file removed, between the two looks.
            table = self._sealed(iteration, columns)
        return table, rows

    def _sealed(self, iteration: int, columns: Collection[str]) -> Any:
        path = log_path(self.folder, iteration, "parquet")
        return read_parquet(path, MATCHES, columns) if path.exists() else None

    def open_rows(self, iteration: int) -> list[dict[str, Any]]:
        """Rows of the open file as they were written; [] without one."""
        path = log_path(self.folder, iteration, "jsonl")
        rows = read_lines(path)
        for number, row in enumerate(rows, start=1):
            if row.pop("schema", None) not in range(1, SCHEMA_VERSION + 1):
                raise LogError(f"{path}:{number}: not of schema {SCHEMA_VERSION}: upgrade arena-selfplay")
        return [row_brought_up(row) for row in rows]


class RunReader:
    """A run folder as its readers see it: config, environment, matches, credit, metrics."""

    def __init__(self, path: str | Path) -> None:
        """StoreError when there is no run folder at `path`."""
        self.path = require_run(Path(path))
        self.log = LogReader(self.path / "log")

    def config(self) -> str:
        """The text of the exact config."""
        path = self.path / CONFIG
        with explained(path, "reading"):
            data = path.read_bytes()
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise StoreError(f"{path} is damaged: it should be text in UTF-8") from None

    def environment(self) -> dict[str, Any]:
        """Versions and machine the run began with, its commands; StoreError when the file is damaged or was edited."""
        path = self.path / ENVIRONMENT
        with explained(path, "reading"):
            text = path.read_bytes()
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise StoreError(f"{path} is damaged: it should be one JSON object")
        seal = body.pop(SEAL, None)
        if seal != digest(body) if seal is not None else not self._of_an_older_arena():
            raise StoreError(f"{path} is not as it was written: restore it from a copy")
        return body

    def _of_an_older_arena(self) -> bool:
        """Whether the folder has nothing of what came with the environment's hash."""
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
        none = _narrowed(MATCHES.empty_table(), MATCHES, columns)
        return pa.concat_tables([none, *(self.log.table(iteration, columns) for iteration in self.iterations())])

    def match(self, id: str) -> dict[str, Any]:
        """One match's row; StoreError, with the nearest id, where there is none."""
        head = id.split("-")[0]
        rows = self.log.read(int(head)) if re.fullmatch(r"\d{1,9}", head) else []
        for row in rows:
            if row["id"] == id:
                return row
        known = [str(row["id"]) for row in rows] or [str(row["id"]) for row in self.matches(streams=False)]
        near = get_close_matches(id[:64], known, n=1)
        hint = f" — did you mean '{near[0]}'?" if near else ""
        raise StoreError(f"{self.path} has no match '{id[:64]}'{hint}")

    def credit(self, iteration: int) -> list[CreditRow]:
        """What credit gave each turn of an iteration; [] where it has not been assigned."""
        return self.log.credit(iteration)

    def credit_table(self) -> Any:
        """What credit gave each turn of the run as an Arrow table, by iteration."""
        return pa.concat_tables([CREDIT.empty_table(), *map(self.log.credit_table, self.iterations())])

    def metrics(self) -> list[dict[str, Any]]:
        """One row per iteration, oldest first."""
        return read_metrics(self.path / "metrics.jsonl")
