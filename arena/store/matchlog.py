"""Writer of the match log: JSON lines while an iteration plays, one Parquet file afterwards."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock, Timer
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from arena.errors import StoreError
from arena.records import MatchRecord, Trajectory
from arena.store.arrow import credit_to_table, matches_to_table
from arena.store.files import TEMPORARY, make_folder, remove, write_atomic
from arena.store.lines import LineWriter, LogError
from arena.store.reader import LogReader, log_path, parse_log_name
from arena.store.schema import SCHEMA_VERSION, CreditRow

ROWS_PER_GROUP = 1000
"""Rows per Parquet row group: reading one match reads one group, not a whole large iteration."""


class MatchLog:
    """Writer of a run's match log. Only one process may write the folder at a time (`RunFolder.lock`)."""

    def __init__(self, folder: Path) -> None:
        """Use this folder. It need not exist: the first match creates it."""
        self.folder = folder
        self._reader = LogReader(folder)
        self._writers: dict[int, LineWriter] = {}

    def extend(self, records: Sequence[MatchRecord]) -> None:
        """Append finished or failed matches to the open logs of their iterations, and sync each log once.

        Images are stored first. On an error, none of an iteration's matches is written. Raises RecordError for values
        that the log cannot hold, and StoreError for a sealed iteration or a failure of the disk.
        """
        lines = [(record.iteration, _with_version(record.to_line())) for record in records]
        self._reader.blobs.put_all({name: data for record in records for name, data in record.pictures.items()})
        for iteration in sorted({iteration for iteration, _ in lines}):
            self._writer(iteration).write([line for k, line in lines if k == iteration])

    def seal(self, iteration: int) -> None:
        """Convert an iteration's JSON lines to one Parquet file ordered by match id, and delete the JSON lines.

        Keeps an existing Parquet file. Raises LogError if a match was logged twice.
        """
        self._close(iteration)
        sealed = log_path(self.folder, iteration, "parquet")
        if not sealed.exists():
            rows = sorted(self._reader.read_open_rows(iteration), key=lambda row: str(row["id"]))
            _refuse_duplicates(rows, sealed)
            make_folder(self.folder)
            write_atomic(sealed, _to_parquet(matches_to_table(rows), ROWS_PER_GROUP))
        remove(log_path(self.folder, iteration, "jsonl"))

    def write_credit(
        self,
        iteration: int,
        credited: Iterable[Trajectory],
        tokens: Mapping[tuple[str, int], Mapping[str, Sequence[float]]] = MappingProxyType({}),
    ) -> None:
        """Write the iteration's credit file: reward and advantage of every turn of the trajectories, by match and turn.

        `tokens` has, by (match, turn), optional lists with a value per token: `advantages`, `ratios` and `gaps`.
        """
        rows = sorted(
            CreditRow(trajectory.match, turn.index, turn.seat, turn.reward, turn.advantage)
            for trajectory in credited
            for turn in trajectory.turns
        )
        make_folder(self.folder)
        table = credit_to_table([{**row._asdict(), **tokens.get((row.match, row.turn), {})} for row in rows])
        write_atomic(log_path(self.folder, iteration, "credit.parquet"), _to_parquet(table, 10 * ROWS_PER_GROUP))

    def iterations(self) -> list[int]:
        """Return the numbers of the iterations that have a log, ascending."""
        return self._reader.iterations()

    def sealed_iterations(self) -> list[int]:
        """Return the iterations whose log is converted to Parquet, so that no match can be added, ascending."""
        return [k for k in self.iterations() if log_path(self.folder, k, "parquet").exists()]

    def discard_after(self, iteration: int) -> list[int]:
        """Delete later iterations' logs and credit, and leftovers of a crash. Return the deleted iterations."""
        self.close()
        later = [number for number in self.iterations() if number > iteration]
        for file in sorted(self.folder.glob("*")):
            parsed = parse_log_name(file.name)
            is_duplicate = parsed and parsed[1] == "jsonl" and file.with_suffix(".parquet").exists()
            is_temporary = file.name.startswith(".") and file.suffix == TEMPORARY
            if is_temporary or is_duplicate or (parsed and parsed[0] > iteration):
                remove(file)
        return later

    def close(self) -> None:
        """Close the open files. A later `extend` opens them again."""
        for number in list(self._writers):
            self._close(number)

    def _writer(self, iteration: int) -> LineWriter:
        if iteration not in self._writers:
            if log_path(self.folder, iteration, "parquet").exists():
                raise StoreError(f"iteration {iteration} of {self.folder} is sealed: no match can be added")
            self._writers[iteration] = LineWriter(log_path(self.folder, iteration, "jsonl"))
        return self._writers[iteration]

    def _close(self, iteration: int) -> None:
        if iteration in self._writers:
            self._writers.pop(iteration).close()


class MatchBatch:
    """Buffer of matches to log. It is written at 1,000 matches, or one second after the first one was added.

    A timer thread writes on time even if the event loop is busy. A killed process loses its buffer; the iteration is
    not committed then, and is played again.
    """

    def __init__(self, log: MatchLog) -> None:
        self.log = log
        self._waiting: list[MatchRecord] = []
        self._lock = Lock()
        self._timer: Timer | None = None
        self._error: Exception | None = None

    def add(self, record: MatchRecord) -> None:
        """Add a match to the buffer, and write the buffer if it holds 1,000 matches.

        Raises the errors of `MatchLog.extend` for any match of the buffer, and those of an earlier write by the timer.
        """
        with self._lock:
            self._waiting.append(record)
            if self._timer is None:
                self._timer = Timer(1.0, self._flush_on_timer)
                self._timer.daemon = True
                self._timer.start()
            full = len(self._waiting) >= 1000
        if full or self._error:
            self.flush()

    def flush(self) -> None:
        """Write the buffer to the log now. Raises the errors of `MatchLog.extend`, also of a write by the timer."""
        with self._lock:
            if self._timer:
                self._timer.cancel()
            waiting, self._waiting, self._timer = self._waiting, [], None
            if self._error:
                raise self._error
            self.log.extend(waiting)

    def _flush_on_timer(self) -> None:
        """Write the buffer when the timer expires. An error is stored for the next `add` or `flush` to raise."""
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 no caller could catch it here
            self._error = error


def _with_version(line: str) -> str:
    """Return the JSON text of an object with the log's schema version as its first entry, `schema`."""
    return f'{{"schema":{SCHEMA_VERSION},{line[1:]}'


def _to_parquet(table: Any, rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue().to_pybytes())


def _refuse_duplicates(rows: list[dict[str, Any]], path: Path) -> None:
    ids = [row["id"] for row in rows]
    duplicates = {id for id in ids if ids.count(id) > 1} if len(set(ids)) < len(ids) else set()
    if duplicates:
        raise LogError(f"{path} cannot be sealed: match {min(duplicates)} was logged more than once")
