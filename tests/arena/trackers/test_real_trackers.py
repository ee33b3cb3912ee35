"""Real trackio and wandb (offline) keep a run's figures and sample matches, each row once."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.store.run import RunFolder
from arena.trackers import threads
from arena.trackers.settings import TrackerName
from arena.trackers.threads import Trackers
from tests.factories.made_run import make_run

STEPS = [1, 2, 3]


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the user's own settings, and allow time on a busy machine."""
    monkeypatch.setattr(threads, "CLOSE_TIMEOUT", 300.0)
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "300")
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)


def run_with_tracker(path: Path, name: TrackerName) -> RunFolder:
    """Return a run that was committed after iterations 2 and 3, and stopped in between."""
    run, notes = make_run(path, iterations=4, live=False), list[str]()
    for iteration in (2, 3):
        with Trackers([name], run.path, 0, notes.append) as trackers:
            run.checkpoint(iteration, lambda folder: None)
            trackers.update()
    assert not notes
    return run


def test_trackio_shows_figures_and_matches(tmp_path: Path, clean_environment: None) -> None:
    pytest.importorskip("trackio", reason="no trackio: pip install 'arena-selfplay[trackio]'")
    run = run_with_tracker(tmp_path / "run", "trackio")
    with sqlite3.connect(run.path / "trackers" / "trackio" / "arena.db") as database:
        rows = database.execute("select step, metrics from metrics order by step").fetchall()
    assert [step for step, _ in rows] == STEPS
    logged = [json.loads(metrics) for _, metrics in rows]
    assert [row["reward/opener"] for row in logged] == [1, 2, 3]
    (sample, *_) = logged[0]["matches"]["_value"]
    assert sample["said"].startswith("opener: OFFER 1 0 2\n") and sample["outcome"].startswith("finished")


def test_wandb_keeps_figures_and_matches_offline(tmp_path: Path, clean_environment: None) -> None:
    pytest.importorskip("wandb", reason="no wandb: pip install 'arena-selfplay[wandb]'")
    run = run_with_tracker(tmp_path / "run", "wandb")
    files = sorted((run.path / "trackers" / "wandb").glob("offline-run-*/*.wandb"))
    rows = [row for file in files for row in read_history(file)]
    assert [row["_step"] for row in rows] == STEPS and [row["reward/opener"] for row in rows] == [1, 2, 3]
    tables = sorted((run.path / "trackers" / "wandb").glob("offline-run-*/files/media/table/matches_*.json"))
    table_data = [json.loads(table.read_text("utf-8")) for table in tables]
    texts = [row[table_data[0]["columns"].index("said")] for table in table_data for row in table["data"]]
    assert len(tables) == len(STEPS) and all(text.startswith("opener: OFFER 1 0 2\n") for text in texts)


BLOCK = 32768
HEAD = 7
"""Bytes before the first record of a file, and before each part of a record: checksum, length, kind."""


def read_history(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows in the file of an offline run, which is a LevelDB log: records in parts, parts in blocks."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, record_bytes = file.read_bytes(), HEAD, b""
    while place + HEAD <= len(data):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record_bytes += data[place + HEAD : place + HEAD + size]
        place += HEAD + size
        if kind in (1, 4):  # a complete record, or its last part
            record = Record()
            record.ParseFromString(record_bytes)
            record_bytes = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
