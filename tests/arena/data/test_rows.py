"""Readers of data sets: any row by number, one line for what is malformed, and memory for offsets only."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.data import lines
from arena.data.lines import MAX_LINE_BYTES, LineFile
from arena.data.rows import MAX_HELD_OUT, DataSet, RowOrder
from arena.errors import ConfigError, StoreError
from tests.factories.data_sets import make_chats, make_labels, make_pairs, write_rows

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), min_size=1, max_size=20), st.booleans())
def test_rows_are_read_in_any_order(rows: list[dict[str, Any]], is_ended: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        text = "\n".join(json.dumps(row, ensure_ascii=False).replace("\ud800", "") for row in rows)
        path.write_text(text + "\n" * is_ended, encoding="utf-8", errors="replace", newline="")
        file = LineFile(path)
        assert len(file) == len(rows)
        for number in reversed(range(len(rows))):
            assert file[number].keys() is not None
            assert json.dumps(file[number]) == json.dumps(json.loads(path.read_bytes().split(b"\n")[number]))


@given(st.binary(max_size=300))
def test_any_bytes_give_rows_or_one_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(data)
        try:
            file = DataSet(path)
            file.check()
        except ConfigError as error:
            assert str(path) in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_lines_are_found_across_chunks(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", chunk)
    rows = [{"text": "x" * length} for length in (0, 1, 5, 40, 2)]
    file = LineFile(write_rows(tmp_path / "rows.jsonl", rows))
    assert [file[i] for i in range(len(file))] == rows


CHAT = make_chats(1)[0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], ": it has no rows"),
        (["", CHAT], ":1: an empty line"),
        ([CHAT, "{"], ":2: not JSON"),
        ([CHAT, "[1]"], ":2: expected an object, got list"),
        ([CHAT, '{"messages": NaN}'], ":2: not JSON: NaN is no number"),
        ([CHAT, '{"a": 1e999, "messages": []}'], ":2: not JSON: a number is too large"),
        ([CHAT, '{"messages": [], "messages": []}'], ":2: not JSON: a key is there twice"),
        ([CHAT, "[" * 100_000], ":2: n"),
        ([CHAT, {"text": "hi"}], ":2: texts among chats: expected messages or prompt with completion"),
        ([CHAT, {"a": 1}], ":2: a row among chats"),
        ([{"a": 1}], ":1: expected messages or prompt with completion, or text, or prompt with chosen with rejected"),
        ([*make_pairs(1), {"prompt": "x", "chosen": "y"}], ":2: a row among pairs: expected prompt with chosen"),
        (
            [*make_pairs(1), {"prompt": "x", "chosen": "y", "rejected": []}],
            ":2: prompt with rejected: completion: expected",
        ),
        ([*make_labels(1), {"prompt": "x", "completion": "y", "label": 1}], ":2: label: expected true or false"),
        ([CHAT, {"messages": [{"role": "king", "content": ""}]}], ":2: messages[0].role: unknown role 'king'"),
        ([{"text": ""}], ":1: text: expected a non-empty text"),
        ([{**CHAT, "opening": -1}], ":1: opening: expected a number"),
    ],
)
def test_malformed_rows_give_one_line(rows: list[Any], message: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(ConfigError) as error:
        DataSet(path).check()
    assert str(error.value).startswith(f"{path}{message}"), error.value


def test_gigabyte_line_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "a"}\n{"text": "')
        file.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match=r"rows.jsonl:2: a line of more than 8 MB"):
        LineFile(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    path.write_bytes(b'{"text": "' + b"x" * MAX_LINE_BYTES + b'"}\n{}\n')
    with pytest.raises(ConfigError, match=r"rows.jsonl:1: a line of more than"):
        LineFile(path)


MANY = """
import resource, sys
from arena.data.lines import LineFile
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
file = LineFile(__import__("pathlib").Path(sys.argv[1]))
assert len(file) == 10**6 and file[999_999] == file[0]
for number in range(0, 10**6, 10):
    file[number]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_million_rows_use_memory_for_offsets_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes((json.dumps(CHAT).encode() + b"\n") * 10**6)
    result = subprocess.run([sys.executable, "-c", MANY, str(path)], capture_output=True, check=True, text=True)
    assert int(result.stdout) < 48 << 10, "KiB"


def test_changed_file_is_not_read_further(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", make_chats(3))
    file = LineFile(path)
    assert file[0]
    with path.open("r+b") as edited:
        edited.write(b"{ ")
    os.utime(path, ns=(1, 1))
    with pytest.raises(StoreError, match="was changed while it was in use"):
        file[0]


def test_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("pipe", "no regular file"), ("none", "No such file|not there|missing")):
        with pytest.raises(StoreError, match=message):
            DataSet(tmp_path / name)


def test_datasets_folders_give_the_same_rows(tmp_path: Path) -> None:
    """Arguments of different calls keep their own fields."""
    datasets = pytest.importorskip("datasets", reason="no datasets: pip install datasets")
    calls = [{"id": "1", "function": {"name": "f", "arguments": arguments}} for arguments in ({"a": "x"}, {"b": 2})]
    rows = [
        {
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "ok"},
                {"role": "assistant", "content": "done"},
            ]
        }
        for call in calls
    ]
    saved = datasets.Dataset.from_list(rows)
    saved.save_to_disk(str(tmp_path / "saved"))
    saved.to_parquet(str(tmp_path / "rows.parquet"))
    for path in (tmp_path / "saved", tmp_path / "rows.parquet"):
        data = DataSet(path)
        data.check()
        assert data.kind == "chats"
        arguments_list = [data[i]["messages"][1]["tool_calls"][0]["function"]["arguments"] for i in range(2)]
        assert arguments_list == [{"a": "x"}, {"b": 2}]
        assert data.rows.sha256 == DataSet(path).rows.sha256
    datasets.DatasetDict({"train": saved}).save_to_disk(str(tmp_path / "splits"))
    for name, message in (("splits", "several splits"), ("nothing", "not a folder of save_to_disk")):
        (tmp_path / name).mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match=message):
            DataSet(tmp_path / name)


def test_every_epoch_has_each_row_once_in_its_own_order() -> None:
    order = RowOrder(103, seed=7, held_out=0.05)
    expected = sorted({*range(103)} - {*order.held_out})
    assert len(order.held_out) == 5 and len(expected) == 98
    batches = [row for k in range(1, 50) for row in order.batch(k, 4)]
    assert sorted(batches[:98]) == sorted(batches[98:196]) == expected and batches[:98] != batches[98:196]
    repeated = RowOrder(103, seed=7, held_out=0.05)
    assert repeated.batch(40, 4) == order.batch(40, 4) and order.batch(1, 4) == batches[:4]
    assert RowOrder(103, seed=8).batch(1, 103) != RowOrder(103, seed=7).batch(1, 103)


def test_epochs_end_with_a_partial_batch() -> None:
    order = RowOrder(10, seed=0, epochs=3)
    assert order.batches(4) == 8
    assert [len(order.batch(k, 4)) for k in range(1, 10)] == [4] * 7 + [2, 0]
    assert len(RowOrder(10**5, seed=0, held_out=0.5).held_out) == MAX_HELD_OUT
    assert len(RowOrder(2, seed=0, held_out=0.01).held_out) == 1
    with pytest.raises(ValueError, match="1 rows leave nothing"):
        RowOrder(1, seed=0, held_out=0.1)
