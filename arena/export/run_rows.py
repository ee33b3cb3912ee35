"""Export of another run's matches as a data set to learn from, when a run with such a source starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from arena.config.experiment import Experiment
from arena.errors import ConfigError, StoreError
from arena.export import tables
from arena.export.formats import export_matches
from arena.export.selection import Selection
from arena.play.settings import RunRows
from arena.store.contents import check_newest
from arena.store.reader import RunReader
from arena.store.sealed_sql import SETTINGS, parse_select, run_sealed


def export_own_rows(experiment: Experiment, to: Path, note: Callable[[str], None]) -> Path | None:
    """Export the rows of an experiment's source, if that names a run, into the empty folder `to`. Returns their file.

    Returns None for any other source. `note` gets messages, such as how many matches were left out. Raises ConfigError
    or StoreError if there is no row to export.
    """
    spec = experiment.source.data if experiment.source else None
    if not isinstance(spec, RunRows):
        return None
    reader = RunReader(Path(spec.run))
    check_newest(reader.path, note)
    matches = find_matches(reader, spec.where) if spec.where else ()
    selection = Selection(matches=matches, policies=tuple(spec.policies))
    try:
        _, notes = export_matches(reader, selection, spec.rows, to)
    except StoreError as error:
        raise ConfigError(f"source.data: {error}") from None
    for line in notes:
        note(line)
    return to / f"{spec.rows}.jsonl"


def find_matches(reader: RunReader, condition: str) -> tuple[str, ...]:
    """Return the ids of the matches that meet an SQL condition on the columns of `arena.export.tables.read_matches`.

    Raises ConfigError if the condition is invalid or no match meets it.
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigError("source.data.where: SQL needs DuckDB: pip install 'arena-selfplay[analysis]'") from None
    schema, batches = tables.read_matches(reader, Selection())
    rows = [{name: row.get(name) for name in schema.names} for batch in batches for row in batch]
    query = f"select match from matches where ({condition})"
    with duckdb.connect(":memory:", config=SETTINGS) as database:
        try:
            parse_select(database, query)
            database.register("matches", pa.Table.from_pylist(rows, schema))
            database.execute("set lock_configuration = true").fetchall()
            ids = run_sealed(database, query, 60.0).column(0).to_pylist()
        except duckdb.Error as error:
            line = str(error).partition("\n\nLINE")[0]
            raise ConfigError(f"source.data.where: {' '.join(line.split())[:300]}") from None
    if not ids:
        raise ConfigError(f"source.data.where: no match of {reader.path} meets it: {condition[:200]}")
    return tuple(ids)
