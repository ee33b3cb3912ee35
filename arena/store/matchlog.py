"""The match log: append-only while an iteration plays, sealed to Parquet when it is over."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, Timer
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from arena.errors import StoreError
from arena.records import MatchRecord, Trajectory
from arena.store.arrow import credit_table, match_table
from arena.store.files import TEMPORARY, make_folder, remove, write_atomic
from arena.store.lines import LineWriter, LogError
from arena.store.reader import LogReader, log_path, logged_in
from arena.store.schema import SCHEMA_VERSION, CreditRow

GROUP = 1000
"""Rows of a sealed file that are read together: one match is found without the rest of a large iteration."""


class MatchLog:
    """The log folder of one run; one process writes it at a time (`RunFolder.lock`)."""

    def __init__(self, folder: Path) -> None:
        """The folder is created with the first match."""
        self.folder = folder
        self._reader = LogReader(folder)
        self._writers: dict[int, LineWriter] = {}

    def append(self, record: MatchRecord) -> None:
        """Keep a match, finished or failed; it is on the disk when this returns.

        RecordError for values that cannot be kept, StoreError for a sealed iteration or a disk that refuses.
        """
        self.extend([record])

    def extend(self, records: Sequence[MatchRecord]) -> None:
        """Keep several matches of one iteration with one wait for the disk; all of them or, on an error, none.

        Their images are on the disk before the matches are in it.
        """
        lines = [(record.iteration, _marked(record.to_line())) for record in records]
        for record in records:
            for name, data in record.pictures.items():
                self._reader.blobs.put(name, data)
        for iteration in sorted({iteration for iteration, _ in lines}):
            self._writer(iteration).write([line for k, line in lines if k == iteration])

    def seal(self, iteration: int) -> None:
        """Turn an iteration's matches into one Parquet file, ordered by id; a sealed one stays as it is."""
        self._close(iteration)
        sealed = log_path(self.folder, iteration, "parquet")
        if not sealed.exists():
            rows = sorted(self._reader.open_rows(iteration), key=lambda row: str(row["id"]))
            _refuse_twins(rows, sealed)
            make_folder(self.folder)
            write_atomic(sealed, _parquet(match_table(rows), GROUP))
        remove(log_path(self.folder, iteration, "jsonl"))

    def write_credit(
        self,
        iteration: int,
        credited: Iterable[Trajectory],
        tokens: Mapping[tuple[str, int], Mapping[str, Sequence[float]]] = MappingProxyType({}),
    ) -> None:
        """Keep the reward and advantage that the turns of these trajectories carry, by match and turn.

        And of their `tokens`, by match and turn, `advantages`, `ratios` and `gaps` where those are kept.
        """
        rows = sorted(
            CreditRow(trajectory.match, turn.index, turn.seat, turn.reward, turn.advantage)
            for trajectory in credited
            for turn in trajectory.turns
        )
        make_folder(self.folder)
        table = credit_table([{**row._asdict(), **tokens.get((row.match, row.turn), {})} for row in rows])
        write_atomic(log_path(self.folder, iteration, "credit.parquet"), _parquet(table, 10 * GROUP))

    def iterations(self) -> list[int]:
        """Numbers of the iterations that have a log, ascending."""
        return self._reader.iterations()

    def sealed(self) -> list[int]:
        """Numbers of the iterations that are over, ascending."""
        return [k for k in self.iterations() if log_path(self.folder, k, "parquet").exists()]

    def read(self, iteration: int) -> list[dict[str, Any]]:
        """Rows of one iteration ordered by id, open or sealed; `MatchRecord.from_json` reads one."""
        return self._reader.read(iteration)

    def credit(self, iteration: int) -> list[CreditRow]:
        """Reward and advantage of each turn; [] where credit has not been assigned."""
        return self._reader.credit(iteration)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every match's row, by iteration and id."""
        for iteration in self.iterations():
            yield from self.read(iteration)

    def discard_after(self, iteration: int) -> list[int]:
        """Remove later iterations' logs and credit and what a crash left over; returns those removed."""
        self.close()
        later = [number for number in self.iterations() if number > iteration]
        for file in sorted(self.folder.glob("*")):
            own = logged_in(file.name)
            twin = own and own[1] == "jsonl" and file.with_suffix(".parquet").exists()
            if (file.name.startswith(".") and file.suffix == TEMPORARY) or twin or (own and own[0] > iteration):
                remove(file)
        return later

    def close(self) -> None:
        """Close the open files; the log can be used again afterwards."""
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
    """Matches on their way into a log: written together, once there are 1,000 or a second after the first of them.

    A clock of its own keeps the second, whatever the process is busy with. What waits here when a process is killed is
    lost; its iteration is not committed then and is played again.
    """

    def __init__(self, log: MatchLog) -> None:
        self.log = log
        self._waiting: list[MatchRecord] = []
        self._lock = Lock()
        self._clock: Timer | None = None
        self._failed: Exception | None = None

    def add(self, record: MatchRecord) -> None:
        """Take a match; StoreError or RecordError as for `MatchLog.extend`, for any that were waiting."""
        with self._lock:
            self._waiting.append(record)
            if self._clock is None:
                self._clock = Timer(1.0, self._late)
                self._clock.daemon = True
                self._clock.start()
            full = len(self._waiting) >= 1000
        if full or self._failed:
            self.flush()

    def flush(self) -> None:
        """Write what waits; it is on the disk when this returns."""
        with self._lock:
            if self._clock:
                self._clock.cancel()
            waiting, self._waiting, self._clock = self._waiting, [], None
            if self._failed:
                raise self._failed
            self.log.extend(waiting)

    def _late(self) -> None:
        """Write after the second is over; an error is raised at the next call."""
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 nobody could catch it here
            self._failed = error


def _marked(line: str) -> str:
    """The line of an object with the schema's version as its first entry."""
    return f'{{"schema":{SCHEMA_VERSION},{line[1:]}'


def _parquet(table: Any, rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue().to_pybytes())


def _refuse_twins(rows: list[dict[str, Any]], path: Path) -> None:
    ids = [row["id"] for row in rows]
    twins = {id for id in ids if ids.count(id) > 1} if len(set(ids)) < len(ids) else set()
    if twins:
        raise LogError(f"{path} cannot be sealed: match {min(twins)} was logged more than once")
