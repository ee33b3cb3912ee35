"""The run folder: after a crash at any moment, committed data is intact and the rest can be dropped."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.stream import Stream
from arena.errors import StoreError
from arena.records import MatchRecord, RecordError, trajectories
from arena.store import checkpoints, files, matchlog
from arena.store.files import join_inside, make_folder, require_safe_name, write_atomic
from arena.store.lines import LineWriter, LogError, read_lines
from arena.store.matchlog import MatchLog
from arena.store.reader import LogReader, RunReader
from arena.store.run import MetricsLog, RunFolder
from arena.store.schema import MATCHES, SCHEMA_VERSION
from arena.store.schema import UNREAD as KNOWN_UNREAD
from games.contracts import UNREAD
from tests.factories.commands import limit_file_size
from tests.factories.store import CONFIG, make_record, write_checkpoint, write_state


def list_ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# The match log


def test_open_and_sealed_iterations_read_alike(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    failed = make_record(3, 1, status="failed", reason="limit")
    records = [make_record(3, 2), make_record(3, 0, text="x\u2028\x00\ud800"), failed]
    for match in records:
        log.extend([match])
    before = LogReader(tmp_path).read(3)
    log.seal(3)
    assert [p.name for p in tmp_path.iterdir()] == ["0003.parquet"]
    assert LogReader(tmp_path).read(3) == before and list_ids(before) == ["0003-0000", "0003-0001", "0003-0002"]
    assert MatchRecord.from_json(LogReader(tmp_path).read(3)[2]) == records[0]
    log.seal(3)
    with pytest.raises(StoreError, match="sealed"):
        log.extend([make_record(3, 9)])


def test_several_iterations_can_be_open(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    for iteration in (1, 0, 1, 10000):
        log.extend([make_record(iteration, len(LogReader(tmp_path).read(iteration)))])
    log.seal(0)
    assert log.iterations() == [0, 1, 10000]
    rows = [row for k in log.iterations() for row in LogReader(tmp_path).read(k)]
    assert list_ids(rows) == ["0000-0000", "0001-0000", "0001-0001", "10000-0000"]


def test_every_match_is_on_the_disk_before_extend_returns(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            log = MatchLog(tmp_path)
            for number in range(5):
                log.extend([make_record(0, number)])
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(LogReader(tmp_path).read(0)) == 5


def test_append_calls_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    log.extend([make_record(0, 1)])
    assert len(synced) == 1


@given(st.integers(1, 2000))
@settings(max_examples=40, deadline=None)
def test_torn_last_line_is_dropped(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = MatchLog(folder)
    log.extend([make_record(0, 0)])
    write = (folder / "0000.jsonl").stat().st_size
    log.extend([make_record(0, 1)])
    size = (folder / "0000.jsonl").stat().st_size
    os.truncate(folder / "0000.jsonl", max(write, size - cut))
    again = MatchLog(folder)
    assert list_ids(LogReader(folder).read(0)) == ["0000-0000"]
    again.extend([make_record(0, 2)])
    assert list_ids(LogReader(folder).read(0)) == ["0000-0000", "0000-0002"]
    again.seal(0)


@pytest.mark.parametrize("line", [b"\x00\x00\x00", b'{"a": 1', b"[1]", b"\xff", b"[" * 10**5])
def test_torn_middle_line_is_refused(tmp_path: Path, line: bytes) -> None:
    garbage = line + b"\n"
    path = tmp_path / "0000.jsonl"
    MatchLog(tmp_path).extend([make_record(0, 0)])
    good = path.read_bytes()
    path.write_bytes(good + garbage + good)
    with pytest.raises(LogError, match=r"0000\.jsonl:2: this line is damaged"):
        LogReader(tmp_path).read(0)
    with pytest.raises(LogError, match=r"0000\.jsonl:2"):
        MatchLog(tmp_path).extend([make_record(0, 1)])
    path.write_bytes(good + garbage)
    assert list_ids(LogReader(tmp_path).read(0)) == ["0000-0000"]


def test_crash_after_sealing_leaves_one_version(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    open_file = (tmp_path / "0000.jsonl").read_bytes()
    log.seal(0)
    (tmp_path / "0000.jsonl").write_bytes(open_file * 2)
    (tmp_path / ".0001.parquet.tmp").write_bytes(b"half")
    assert list_ids(LogReader(tmp_path).read(0)) == ["0000-0000"] and MatchLog(tmp_path).iterations() == [0]
    MatchLog(tmp_path).discard_after(0)
    assert [p.name for p in tmp_path.iterdir()] == ["0000.parquet"]


def test_a_match_logged_twice_is_not_sealed(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    log.extend([make_record(0, 0)])
    with pytest.raises(LogError, match="0000-0000 was logged more than once"):
        log.seal(0)
    assert not (tmp_path / "0000.parquet").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": -1},
        {"seed": 2**64},
        {"streams": {"opener": (Stream([2**31], [False], [0.0], [-1]),)}},
        {"payoffs": {"opener": float("nan")}},
    ],
)
def test_unsealable_match_is_not_appended(tmp_path: Path, changes: dict[str, Any]) -> None:
    log = MatchLog(tmp_path)
    with pytest.raises((LogError, RecordError)) as error:
        log.extend([make_record(0, 0, **changes)])
    assert "\n" not in str(error.value) and log.iterations() == []


def test_credit_is_written_and_read(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    (opener,) = trajectories(make_record(0, 0))
    log.extend([make_record(0, 0)])
    log.seal(0)
    assert LogReader(tmp_path).credit(0) == []
    log.write_credit(0, [opener.credited([4.0], [-0.25])])
    assert LogReader(tmp_path).credit(0) == [("0000-0000", 0, "opener", 4.0, -0.25)]
    assert log.iterations() == [0]


def test_later_iterations_are_discarded_in_every_form(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    (opener,) = trajectories(make_record(0, 0))
    for iteration in range(4):
        log.extend([make_record(iteration, 0)])
        if iteration < 3:
            log.seal(iteration)
        log.write_credit(iteration, [opener])
    assert log.discard_after(1) == [2, 3]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "0000.credit.parquet", "0000.parquet", "0001.credit.parquet", "0001.parquet",
    ]  # fmt: skip
    log.extend([make_record(2, 5)])
    assert list_ids(LogReader(tmp_path).read(2)) == ["0002-0005"]
    assert MatchLog(tmp_path / "absent").discard_after(0) == []


# The schema


def test_the_schema_is_versioned_and_documents_every_field(tmp_path: Path) -> None:
    def list_undocumented(fields: object) -> list[str]:
        missing = []
        for field in fields:  # type: ignore[attr-defined]
            missing += [] if (field.metadata or {}).get(b"doc") else [field.name]
            fill_command = field.type.value_type if hasattr(field.type, "value_type") else field.type
            missing += list_undocumented(fill_command) if getattr(fill_command, "num_fields", 0) else []
        return missing

    assert list_undocumented(MATCHES) == []
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    log.seal(0)
    schema = pq.read_schema(tmp_path / "0000.parquet")
    assert schema.metadata[b"arena.schema_version"] == str(SCHEMA_VERSION).encode()
    assert schema.field("seed").metadata[b"doc"]


@pytest.mark.parametrize("other", [1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, 99])
def test_another_schema_is_refused_in_one_line(tmp_path: Path, other: int) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    log.extend([make_record(1, 0)])
    log.seal(0)
    table = pq.read_table(tmp_path / "0000.parquet")
    pq.write_table(table.replace_schema_metadata({"arena.schema_version": f"{other}"}), tmp_path / "0000.parquet")
    with pytest.raises(StoreError, match=f"schema version {other}, and this Arena reads version 4: use"):
        LogReader(tmp_path).read(0)
    for metadata in ({}, {"arena.schema_version": "9" * 5000}):  # more digits than Python makes a number of
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "0000.parquet")
        with pytest.raises(StoreError, match="is not a match log"):
            LogReader(tmp_path).read(0)
    path = tmp_path / "0001.jsonl"
    path.write_text(path.read_text().replace(f'"schema":{SCHEMA_VERSION}', f'"schema":{other}'))
    with pytest.raises(StoreError, match=rf"0001\.jsonl:1 has schema version {other}, and"):
        LogReader(tmp_path).read(1)


@given(st.data())
def test_damaged_sealed_file_never_reads_differently(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = MatchLog(folder)
    log.extend([make_record(0, 0)])
    right, some = LogReader(folder).read(0), ["id", "turns.seat", "turns.rewards"]
    log.seal(0)
    reader = LogReader(folder)
    table = reader.table(0, some)
    path = folder / "0000.parquet"
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    for read, known in ((lambda: reader.read(0), right), (lambda: reader.table(0, some), table)):
        try:
            assert read() == known
        except StoreError as error:
            assert "\n" not in str(error)


# Files


def test_file_is_replaced_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, "old")

    def raise_disk_full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", raise_disk_full)
    with pytest.raises(StoreError, match=r"disk full while writing .*state\.json; free some space"):
        write_atomic(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_failing_disk_leaves_the_log_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_number: int
) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG, {})
    run.log.extend([make_record(0, 0)])
    write = os.write

    def write_partially(descriptor: int, data: bytes) -> int:
        if len(data) > 100:
            return write(descriptor, bytes(data)[:100])
        raise OSError(error_number, os.strerror(error_number))

    monkeypatch.setattr(os, "write", write_partially)
    with pytest.raises(StoreError) as error:
        run.log.extend([make_record(0, 1)])
    monkeypatch.undo()
    assert f"then arena resume {run.path}" in str(error.value) and "\n" not in str(error.value)
    run.log.extend([make_record(0, 2)])
    assert list_ids(run.reader.log.read(0)) == ["0000-0000", "0000-0002"]


def fill_the_disk(path: Path) -> None:
    """Write a checkpoint, matches and metrics into a new run until each is refused; earlier data stays."""
    run = RunFolder.create(path, "a: 1", {})
    rest = f"free some space, then arena resume {run.path}"
    checkpoints.write(run.path, 0, write_state)
    with pytest.raises(StoreError, match=f"^disk full while writing {path}/checkpoints/0001; {rest}$"):
        checkpoints.write(run.path, 1, lambda folder: write_checkpoint(folder, "x" * 10**4))
    newest = checkpoints.newest_valid(run.path)
    assert newest and newest.iteration == 0 and checkpoints.iterations(run.path) == [0]
    numbers = itertools.count()
    with pytest.raises(StoreError, match=f"^disk full while writing {path}/log/0000.jsonl; {rest}$"):
        for number in numbers:
            run.log.extend([make_record(0, number, text="x" * 5000)])
    assert len(run.reader.log.read(0)) == next(numbers) - 1 > 3
    with pytest.raises(StoreError, match=f"^disk full while writing {path}/metrics.jsonl; {rest}$"):
        run.metrics.append({"iteration": 0, "x": "y" * 10**6})
    assert run.metrics.read() == []


def test_file_size_limit_is_reported_as_a_full_disk(tmp_path: Path) -> None:
    with limit_file_size(100_000):
        fill_the_disk(tmp_path / "run")


@pytest.mark.slow
def test_a_small_real_disk_that_runs_full(tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=256k tmpfs '{tmp_path}'"
    try:
        possible = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("a small disk cannot be mounted here")
    code = "import sys; from pathlib import Path; from tests.arena.store.test_store import fill_the_disk as fill\n"
    fill_command = [sys.executable, "-c", f"{code}fill(Path(sys.argv[1]))", f"{tmp_path}/run"]
    command = [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh", *fill_command]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[3])
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "a.b", "x" * 65, "a\0", "é", "a b", "a\n", "/etc"])
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError):
        require_safe_name(name, "policy")
    assert require_safe_name("Shared_1-a", "policy") == "Shared_1-a"


@pytest.mark.parametrize("relative", ["../x", "/etc/passwd", "a/../../x", "link/x", "a\0b"])
def test_paths_stay_inside(tmp_path: Path, relative: str) -> None:
    root = make_folder(tmp_path / "run")
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="leads out of"):
        join_inside(root, relative)
    assert join_inside(root, "policies/a") == root / "policies" / "a"


# Metrics


def test_metrics_are_kept_read_and_discarded(tmp_path: Path) -> None:
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    assert metrics.read() == []
    for iteration in range(3):
        metrics.append({"iteration": iteration, "reward": {"opener": float("nan")}})
    with metrics.path.open("ab") as file:
        file.write(b'{"iteration": 3, "rew')
    assert [row["iteration"] for row in metrics.read()] == [0, 1, 2]
    assert metrics.read()[0]["reward"] == {"opener": None}
    metrics.append({"iteration": 3})
    metrics.discard_after(0)
    assert [row["iteration"] for row in metrics.read()] == [0]
    with pytest.raises(ValueError, match="iteration"):
        metrics.append({"loss": 1.0})


def test_a_line_writer_closes_once(tmp_path: Path) -> None:
    with LineWriter(tmp_path / "new" / "x.jsonl") as writer:
        writer.append({"a": "\u2028"})
        writer.close()
    assert read_lines(tmp_path / "new" / "x.jsonl") == [{"a": "\u2028"}]


# The run folder


def test_a_run_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    run = RunFolder.create(path, CONFIG, {"python": "3.11", "load": float("nan")})
    assert RunReader(path).config() == CONFIG
    assert RunReader(path).environment() == {"python": "3.11", "load": None}
    assert RunFolder.open(path).path == run.path
    with pytest.raises(StoreError, match=f"already holds a run: arena resume {path}, or choose"):
        RunFolder.create(path, CONFIG, {})
    assert RunReader(path).config() == CONFIG


def test_foreign_folder_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"is not empty \(it holds 'thesis.tex'\): choose another --out"):
        RunFolder.create(tmp_path, CONFIG, {})
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StoreError, match="is a file"):
        RunFolder.create(tmp_path / "thesis.tex", CONFIG, {})


def test_leftovers_of_a_killed_creation_are_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".environment.json.tmp").write_text("{")
    (tmp_path / "environment.json").write_text("{}")
    (tmp_path / "run.lock").touch()
    with pytest.raises(StoreError, match=r"is not a run folder: it has no config\.yaml"):
        RunFolder.open(tmp_path)
    RunFolder.create(tmp_path, CONFIG, {})


@pytest.mark.parametrize("kind", [RunFolder.open, RunReader])
def test_missing_run_is_refused(tmp_path: Path, kind: type) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        kind(tmp_path)
    with pytest.raises(StoreError, match="there is no folder"):
        kind(tmp_path / "nowhere")


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG, {})
    code = """
        import sys
        from arena.store.run import RunFolder, StoreError
        try:
            with RunFolder.open(sys.argv[1]).lock():
                print("mine")
        except StoreError as error:
            print(error)
    """
    with run.lock():
        message = run_python(code, str(run.path)).stdout.strip()
        assert message == f"{run.path} is in use by process {os.getpid()}"
    (run.path / "run.pid").write_text("999999")  # as a killed process leaves it
    with run.lock():
        pass


def test_discard_after_drops_later_iterations(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG, {})
    for iteration in range(3):
        run.log.extend([make_record(iteration, 0)])
        run.log.seal(iteration)
        run.metrics.append({"iteration": iteration})
        run.checkpoint(iteration, write_state)
    (run.path / "checkpoints" / "0002" / "state.json").write_text("{ }")
    reasons: list[str] = []
    newest = run.newest_valid(reasons.append)
    assert newest is not None and newest.iteration == 1 and "0002 is damaged: state.json" in reasons[0]
    assert run.discard_after(1) == [2]
    assert run.log.iterations() == [0, 1] and len(run.metrics.read()) == 2
    assert run.newest_valid() == newest


# The reader


def test_a_match_is_found_by_its_id(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG, {})
    run.log.extend([make_record(0, 1)])
    reader = RunReader(run.path)
    assert reader.match("0000-0001")["payoffs"] == {"opener": 4.0}
    for wrong in ("0000-0002", "9-1", "x", "", "²-1"):
        with pytest.raises(StoreError, match="has no match"):
            reader.match(wrong)
    with pytest.raises(StoreError, match="did you mean '0000-0001'"):
        reader.match("0000-0010")


def test_streams_can_be_left_out(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    log.seal(0)
    assert "streams" not in LogReader(tmp_path).read(0, streams=False)[0]
    assert LogReader(tmp_path).read(0)[0]["streams"]["opener"][0]["ids"] == [1, 2]


def test_columns_of_open_and_sealed_iterations_are_equal(tmp_path: Path) -> None:
    log, reader = MatchLog(tmp_path), LogReader(tmp_path)
    for number in (2, 0, 1):
        log.extend([make_record(0, number)])
    some = ["turns.rewards", "turns.index", "id", "payoffs", "seats.policy"]
    table = reader.table(0, some)
    log.seal(0)
    assert reader.table(0, some).equals(table) and reader.table(0, ["id"]).equals(table.select(["id"]))
    assert table.to_pylist()[2] == {
        "id": "0000-0002",
        "payoffs": [{"seat": "opener", "value": 4.0}],
        "seats": [{"policy": "shared"}],
        "turns": [{"index": 0, "rewards": [{"name": "deal", "value": 4.0}]}],
    }
    assert reader.table(9, some).equals(table.slice(0, 0))


def test_only_requested_columns_are_read(tmp_path: Path) -> None:
    log, reader = MatchLog(tmp_path), LogReader(tmp_path)
    log.extend([make_record(0, 0)])
    log.seal(0)
    table, path = reader.table(0, ["id", "turns.raw"]), tmp_path / "0000.parquet"
    raw, group = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(0)
    for chunk in (group.column(i) for i in range(group.num_columns)):
        if chunk.path_in_schema not in ("id", "turns.list.element.raw"):
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            raw[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(raw)
    assert reader.table(0, ["id", "turns.raw"]).equals(table)
    with pytest.raises(LogError, match="cannot be read"):
        reader.table(0, ["id", "turns"])


def test_match_is_read_without_other_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other row groups are damaged here, which only a full read notices."""
    monkeypatch.setattr(matchlog, "ROWS_PER_GROUP", 2)
    log, reader = MatchLog(tmp_path), LogReader(tmp_path)
    records = [make_record(0, number) for number in range(30)]
    log.extend(records)
    log.seal(0)
    log.write_credit(0, [trajectory.credited([1.0], [0.5]) for each in records for trajectory in trajectories(each)])
    expected = [row for row in LogReader(tmp_path).read(0) if row["id"] == "0000-0005"]
    for path in (tmp_path / "0000.parquet", tmp_path / "0000.credit.parquet"):
        raw, file = bytearray(path.read_bytes()), pq.read_metadata(path)
        for group in (file.row_group(k) for k in range(file.num_row_groups)):
            bounds = group.column(0).statistics
            for chunk in (group.column(i) for i in range(group.num_columns)):
                begin = chunk.dictionary_page_offset or chunk.data_page_offset
                if not bounds.min <= "0000-0005" <= bounds.max:
                    raw[begin + chunk.total_compressed_size - 1] ^= 1
        path.write_bytes(raw)
    assert reader.read(0, ids=["0000-0005"]) == expected
    assert reader.credit_table(0, ids=["0000-0005"])["match"].to_pylist() == ["0000-0005"]
    assert reader.read(0, ids=["0000-0099"]) == [] and reader.credit_table(0, ids=[""]).num_rows == 0
    with pytest.raises(LogError, match="cannot be read"):
        reader.read(0)


def test_sealing_during_a_read_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    reader = LogReader(tmp_path)
    read_sealed = reader._read_sealed
    results: list[object] = []

    def seal_after_first_read(iteration: int, *options: Any) -> object:
        found = read_sealed(iteration, *options)
        if not results:
            log.seal(iteration)
        results.append(found)
        return found

    monkeypatch.setattr(reader, "_read_sealed", seal_after_first_read)
    assert list_ids(reader.read(0)) == ["0000-0000"] and results[0] is None


def test_damaged_environment_is_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG, {})
    (run.path / "environment.json").write_text("[1")
    with pytest.raises(StoreError, match=r"environment\.json is not as it was written"):
        RunReader(run.path).environment()


@pytest.mark.parametrize("name", ["experiment", "versions", "files", "commands"])
@pytest.mark.parametrize("value", ["x", 3, ["x"]], ids=str)
def test_a_field_of_another_type_in_the_environment_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG, {name: value})
    with pytest.raises(StoreError, match=r"environment\.json is damaged: .* restore it from a copy$"):
        RunReader(run.path).environment()


def test_the_reader_loads_neither_torch_nor_players_nor_rules() -> None:
    """Of `games` it loads only the module that opens files."""
    code = """
        import arena.store.reader, sys
        loaded = sys.modules.keys() - {"agents", "agents.cgroups"}  # reads files, imports nothing heavy
        assert not {m.split(".")[0] for m in loaded} & {"torch", "transformers", "agents", "pettingzoo"}
        assert "games.base" not in sys.modules
    """
    assert run_python(code).returncode == 0


def test_json_lines_are_read_by_plain_json(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0, text="\u2028\n\ud800")])
    (line,) = (tmp_path / "0000.jsonl").read_text("ascii").splitlines()
    assert json.loads(line)["turns"][0]["raw"] == "\u2028\n\ufffd"
    assert files.CONFIG == "config.yaml"


def test_a_batch_is_written_when_it_is_full_or_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, batch = LogReader(tmp_path), matchlog.MatchBatch(MatchLog(tmp_path))
    monkeypatch.setattr(
        matchlog, "Timer", lambda seconds, late: Timer(3600.0, late)
    )  # a busy machine may exceed the interval
    for number in range(999):
        batch.add(make_record(0, number))
    assert log.read(0) == []
    batch.add(make_record(0, 999))
    assert len(log.read(0)) == 1000, "a full batch is written"
    batch.add(make_record(1, 0))
    batch.flush()
    batch.flush()
    assert (len(log.read(0)), len(log.read(1))) == (1000, 1)


def test_single_match_is_written_after_the_interval(tmp_path: Path) -> None:
    log, batch = LogReader(tmp_path), matchlog.MatchBatch(MatchLog(tmp_path))
    batch.add(make_record(0, 0))
    assert log.read(0) == [], "a batch waits first"
    for _ in range(300):
        if log.read(0):
            break
        time.sleep(0.1)
    assert len(log.read(0)) == 1
    batch.add(make_record(0, 1))
    batch.flush()
    assert len(log.read(0)) == 2, "a match was written twice"


def test_failed_timed_write_is_raised_by_the_next_call(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(0, 0)])
    log.seal(0)
    batch = matchlog.MatchBatch(log)
    batch.add(make_record(0, 1))
    batch._flush_on_timer()
    with pytest.raises(StoreError, match="is sealed"):
        batch.add(make_record(0, 2))
    with pytest.raises(StoreError, match="is sealed"):
        batch.flush()


def test_reader_knows_the_unread_sources() -> None:
    assert KNOWN_UNREAD == UNREAD
