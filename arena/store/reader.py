"""Readers of the folders of finished or running runs. They import no learning code."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arena.errors import StoreError
from arena.store.arrow import complete_table, matches_to_table, parquet_columns, table_to_matches
from arena.store.blobs import Blobs
from arena.store.files import CONFIG, explain_errors, require_config, require_run
from arena.store.lines import LogError, read_lines
from arena.store.manifest import read_sealed
from arena.store.schema import (
    CREDIT,
    MATCHES,
    SCHEMA_VERSION,
    CreditRow,
    drop_fields,
    explain_version,
    find_absent_fields,
)
from games.names import nearest
from games.plain_files import open_plain, read_plain

ENVIRONMENT = "environment.json"
"""File with the run's environment."""
MAX_BYTES = 4 * 10**6
"""Maximum bytes of a run's config and of its environment."""
FIELD_TYPES = {"experiment": dict, "versions": dict, "files": dict, "commands": list}
"""Types of the optional fields of an environment."""
_LOG_FILE = re.compile(r"(\d{4}|[1-9]\d{4,8})\.(jsonl|parquet|credit\.parquet)", re.ASCII)
_MATCH_ID = re.compile(r"(\d{4}|[1-9]\d{4,8})-\d{4,9}(-[rb]\d{1,9})*", re.ASCII)


def log_path(folder: Path, iteration: int, kind: str) -> Path:
    """Return the path of an iteration's log file: `jsonl` (being played), `parquet` (sealed) or `credit.parquet`."""
    return folder / f"{iteration:04d}.{kind}"


def parse_log_name(name: str) -> tuple[int, str] | None:
    """Return iteration and kind (`jsonl`, `parquet` or `credit.parquet`) of a log file's name; None for other names."""
    match = _LOG_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_iteration(id: str) -> int | None:
    """Return the iteration in a match id such as 0003-0012; None if the text is not a match id."""
    match = _MATCH_ID.fullmatch(id)
    return int(match[1]) if match else None


def read_parquet(
    path: Path, schema: Any, columns: Collection[str], sparse: bool = False, ids: Collection[str] | None = None
) -> Any:
    """Read columns, by dotted names such as `turns.seat`, from a sealed log or credit file as an Arrow table.

    Optional columns that the file lacks are filled with defaults, or left out if `sparse`. With `ids`, only rows of
    these matches are returned, and row groups without them are not read. Raises LogError if the file is damaged or has
    another schema version.
    """
    try:
        open_plain(path).close()  # raises for a pipe, on which pyarrow would hang
        file = pq.ParquetFile(path, page_checksum_verification=True)
        absent = find_absent_fields(schema, file.schema_arrow, file.schema_arrow.metadata, path)
        groups = [k for k in range(file.num_row_groups) if ids is None or _may_contain(file.metadata.row_group(k), ids)]
        table = file.read_row_groups(groups, columns=parquet_columns(file.schema_arrow, columns))
        table = complete_table(table, drop_fields(schema, absent) if sparse else schema, columns)
        return table if ids is None else table.filter(pc.field(schema.names[0]).isin(sorted(ids)))
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise LogError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _may_contain(group: Any, ids: Collection[str]) -> bool:
    """Return False if the row group's bounds of its first column, the match ids, exclude all of `ids`."""
    bounds = group.column(0).statistics
    return bounds is None or not bounds.has_min_max or any(bounds.min <= id <= bounds.max for id in ids)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return a metrics log's rows; [] if missing. Raises LogError for a line that is damaged or has no iteration."""
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        iteration = row.get("iteration")
        if not isinstance(iteration, int) or isinstance(iteration, bool) or not 0 <= iteration < 10**9:
            raise LogError(f"{path}:{number}: this line has no iteration: restore the file from a copy")
    return rows


class LogReader:
    """Reader of a run's log: match rows, as `MatchRecord.to_json` returns them, and credit.

    The log of an iteration is open (JSON lines) while it is played, and then sealed (Parquet).
    """

    def __init__(self, folder: Path) -> None:
        """Prepare to read the folder, which may not exist yet."""
        self.folder = folder
        self.blobs = Blobs(folder / "blobs")
        """Images of the matches."""

    def iterations(self) -> list[int]:
        """Return the numbers of the iterations that have a log, ascending."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        found = [parse_log_name(file.name) for file in files]
        return sorted({parsed[0] for parsed in found if parsed and parsed[1] != "credit.parquet"})

    def read(self, iteration: int, streams: bool = True, ids: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Return an iteration's rows, all or those of `ids`, ordered by match id. Without `streams`, they lack tokens.

        Raises LogError for a damaged log.
        """
        columns = [name for name in MATCHES.names if streams or name != "streams"]
        rows = table_to_matches(self._read_table(iteration, columns, sparse=True, ids=ids))
        return sorted(rows, key=lambda row: str(row["id"]))

    def table(self, iteration: int, columns: Collection[str], ids: Collection[str] | None = None) -> Any:
        """Return columns of an iteration, by dotted names such as `turns.seat`, as an Arrow table ordered by match id.

        `ids` restricts the matches. Raises LogError for a damaged log.
        """
        return self._read_table(iteration, columns, ids=ids).sort_by("id")

    def images(self, iteration: int) -> set[str]:
        """Return the SHA-256 hashes of the images in an iteration's messages."""
        column = self.table(iteration, ["id", "turns.messages.images"])["turns"].combine_chunks()
        for name in ("messages", "images", "hash"):
            column = column.flatten().field(name)
        return set(column.to_pylist())

    def credit(self, iteration: int) -> list[CreditRow]:
        """Return the reward and advantage of each turn of an iteration; [] before credit has been assigned."""
        return [CreditRow(**row) for row in self.credit_table(iteration).to_pylist()]

    def credit_table(
        self, iteration: int, columns: Collection[str] = CreditRow._fields, ids: Collection[str] | None = None
    ) -> Any:
        """Return columns of an iteration's credit as an Arrow table, one row per turn; empty before it is assigned.

        `ids` restricts the matches. `columns` may include lists with a value per token: `advantages`, `ratios`, `gaps`.
        """
        path = log_path(self.folder, iteration, "credit.parquet")
        exists = path.exists()
        return read_parquet(path, CREDIT, columns, ids=ids) if exists else CREDIT.empty_table().select([*columns])

    def _read_table(
        self, iteration: int, columns: Collection[str], sparse: bool = False, ids: Collection[str] | None = None
    ) -> Any:
        """Return columns of an iteration as an Arrow table, from its Parquet file or, if unsealed, its JSON lines."""
        table = self._read_sealed(iteration, columns, sparse, ids)
        if table is None and not (rows := self.read_open_rows(iteration)):
            # The run may have sealed it and removed its open file between the two reads.
            table = self._read_sealed(iteration, columns, sparse, ids)
        if table is not None:
            return table
        selected = rows if ids is None else [row for row in rows if row.get("id") in ids]
        return self._read_open(iteration, selected, columns, sparse)

    def _read_open(self, iteration: int, rows: Sequence[dict[str, Any]], columns: Collection[str], sparse: bool) -> Any:
        """Return columns of JSON-lines rows as an Arrow table. Raises LogError if a row does not fit the schema."""
        try:
            table = matches_to_table(rows)
        except LogError as error:
            path = log_path(self.folder, iteration, "jsonl")
            raise LogError(f"{path}: {error}: restore the file from a copy") from None
        if sparse:
            return table.select([name for name in table.column_names if name in columns])
        return complete_table(table, MATCHES, columns)

    def _read_sealed(self, iteration: int, columns: Collection[str], sparse: bool, ids: Collection[str] | None) -> Any:
        path = log_path(self.folder, iteration, "parquet")
        if not os.path.lexists(path):
            return None
        table = read_parquet(path, MATCHES, columns, sparse, ids)
        if "id" in columns and pc.count_distinct(table["id"]).as_py() != len(table):
            raise LogError(f"{path} has a match twice: restore the log from a copy")
        return table

    def read_open_rows(self, iteration: int) -> list[dict[str, Any]]:
        """Return an open iteration's rows in the order of writing; [] if there are none. Raises LogError if damaged."""
        path = log_path(self.folder, iteration, "jsonl")
        rows = read_lines(path)
        for number, row in enumerate(rows, start=1):
            version = row.pop("schema", None)
            if type(version) is not int or version != SCHEMA_VERSION:
                raise LogError(f"{path}:{number} has {explain_version(version)}")
        return rows


class FolderReader:
    """Reader of the config and environment of a run's or pipeline's folder."""

    def __init__(self, path: str | Path) -> None:
        """Prepare to read the folder `path`. Raises StoreError if it has no config."""
        self.path = require_config(Path(path))

    def config(self) -> str:
        """Return the text of the run's `config.yaml`. Raises StoreError if it is not UTF-8 or too large."""
        try:
            with explain_errors(self.path / CONFIG, "reading"):
                return read_plain(self.path / CONFIG, MAX_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise StoreError(f"{self.path / CONFIG} is damaged: it should be text in UTF-8") from None

    def environment(self) -> dict[str, Any]:
        """Return the run's environment: `versions`, `commands`, `experiment` and machine, as stored at its start.

        Raises StoreError if the file is damaged or was edited.
        """
        path = self.path / ENVIRONMENT
        body = read_sealed(path, MAX_BYTES)
        for name, kind in FIELD_TYPES.items():
            if body.get(name) is not None and not isinstance(body[name], kind):
                raise StoreError(f"{path} is damaged: its {name} should be a {kind.__name__}: restore it from a copy")
        if not all(isinstance(command, dict) for command in body.get("commands") or ()):
            raise StoreError(f"{path} is damaged: a command should be a dict: restore it from a copy")
        return body


class RunReader(FolderReader):
    """Reader of a run folder: config, environment, matches, credit and metrics."""

    def __init__(self, path: str | Path) -> None:
        """Prepare to read the run at `path`. Raises StoreError if it is not a run folder."""
        super().__init__(require_run(Path(path)))
        self.log = LogReader(self.path / "log")

    def iterations(self) -> list[int]:
        """Return the numbers of the iterations that have a log, ascending."""
        return self.log.iterations()

    def matches(self, streams: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the row of every match, ordered by iteration and id. Without `streams`, rows have no tokens."""
        for iteration in self.iterations():
            yield from self.log.read(iteration, streams)

    def table(self, columns: Collection[str]) -> Any:
        """Return columns of all matches, by names such as `turns.seat`, as an Arrow table by iteration and match id."""
        empty = complete_table(MATCHES.empty_table(), MATCHES, columns)
        return pa.concat_tables([empty, *(self.log.table(iteration, columns) for iteration in self.iterations())])

    def match(self, id: str) -> dict[str, Any]:
        """Return the row of the match `id`. Raises StoreError, with the nearest id, if there is none."""
        iteration = parse_iteration(id)
        for row in [] if iteration is None else self.log.read(iteration, ids=[id]):
            return row
        raise StoreError(f"{self.path} has no match '{id[:64]}'{nearest(id, self.table(['id'])['id'].to_pylist())}")

    def credit(self, iteration: int) -> list[CreditRow]:
        """Return the reward and advantage of each turn of an iteration; [] before credit has been assigned."""
        return self.log.credit(iteration)

    def credit_table(self) -> Any:
        """Return match, turn, seat, reward and advantage of all turns as an Arrow table, ordered by iteration."""
        empty = CREDIT.empty_table().select([*CreditRow._fields])
        return pa.concat_tables([empty, *map(self.log.credit_table, self.iterations())])

    def metrics(self) -> list[dict[str, Any]]:
        """Return the run's metrics, one row per iteration, oldest first. Raises LogError for a damaged line."""
        return read_metrics(self.path / "metrics.jsonl")
