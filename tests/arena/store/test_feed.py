"""The feed's file is bounded, and its reader skips whatever does not fit, whoever wrote it."""

import json
import os
from pathlib import Path

import pytest

from arena.store import feed
from arena.store.feed import FEED, FeedReader, FeedWriter
from tests.factories.feed import HEAD, TURN, make_lines


def read_feed(run: Path) -> FeedReader:
    reader = FeedReader(run)
    reader.refresh()
    return reader


def test_reader_follows_into_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_BYTES", 20_000)
    writer, reader = FeedWriter(tmp_path), FeedReader(tmp_path)
    for number in range(200):
        writer.write(make_lines(f"m{number}", 2), over=[f"m{number - 3}"])
        reader.refresh()
        assert (tmp_path / FEED).stat().st_size <= 20_000
        followed = [id for id, match in reader.matches.items() if not match.over]
        assert followed == [f"m{k}" for k in range(max(0, number - 2), number + 1)]
        row = reader.row(f"m{number}")
        assert row and [turn["index"] for turn in row["turns"]] == [0, 1] and row["seed"] == 2**63
    writer.close()
    reader.refresh()
    assert reader.matches == {} and not (tmp_path / FEED).exists()


def test_endless_match_leaves_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_BYTES", 40_000)
    writer = FeedWriter(tmp_path)
    for number in range(100):
        writer.write([("long", json.dumps({"match": "long", "turn": TURN | {"index": number}}))])
    writer.write(make_lines("short"))
    assert (tmp_path / FEED).stat().st_size <= 40_000
    assert [id for id, match in read_feed(tmp_path).matches.items() if not match.over] == ["short"]


def test_torn_line_is_read_once_complete(tmp_path: Path) -> None:
    (_, head), (_, turn) = make_lines("m")
    (tmp_path / FEED).write_text(f'{{"feed":"x"}}\n{head}\n{turn[:50]}')
    reader = read_feed(tmp_path)
    assert reader.matches["m"].turn_spans == []
    with (tmp_path / FEED).open("a") as file:
        file.write(f"{turn[50:]}\n")
    reader.refresh()
    assert len(reader.matches["m"].turn_spans) == 1


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "{}", '{"match": 3}', "{" * 100_000, "[" * 100_000, '"\\ud800"', "\xff", "NaN",
        '{"match": "n", "turn": {"index": 0}}', '{"match": "n", "head": {"seats": []}}', "x" * 2_000_000,
        json.dumps({"match": "n", "head": HEAD | {"seats": {"opener": 1}}}),
        json.dumps({"match": "m", "turn": TURN | {"raw": 1}}), json.dumps({"match": "m", "turn": TURN | {"index": 7}}),
        json.dumps({"match": "m", "turn": TURN | {"messages": [{"sender": 1, "text": []}]}}),
        json.dumps({"match": "m", "turn": TURN | {"rewards": {"deal": "1"}}}), '{"match": "m", "over": "yes"}',
    ],
)  # fmt: skip
def test_invalid_line_is_skipped(tmp_path: Path, line: str) -> None:
    (_, head), (_, turn) = make_lines("m")
    (tmp_path / FEED).write_bytes(
        b"\n".join([b'{"feed":"x"}', head.encode(), line.encode("latin-1"), turn.encode(), b""])
    )
    reader = read_feed(tmp_path)
    assert {*reader.matches} == {"m"} and not reader.matches["m"].over
    row = reader.row("m")
    assert row and [read_turn["raw"] for read_turn in row["turns"]] == ["hello"]


def test_irregular_or_oversized_feed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, a pipe, a folder and a file that is too large; none of them blocks the reader."""
    path, other = tmp_path / FEED, tmp_path / "other"
    other.write_text("\n".join(['{"feed":"x"}', *(text for _, text in make_lines("m")), ""]))
    path.symlink_to(other)
    assert read_feed(tmp_path).matches == {}
    path.unlink()
    os.mkfifo(path)
    assert read_feed(tmp_path).matches == {}
    path.unlink()
    path.mkdir()
    assert read_feed(tmp_path).matches == {}
    path.rmdir()
    path.write_bytes(other.read_bytes())
    assert {*read_feed(tmp_path).matches} == {"m"}
    monkeypatch.setattr(feed, "MAX_BYTES", 100)
    assert read_feed(tmp_path).matches == {}
    path.chmod(0)
    path.unlink()
    assert read_feed(tmp_path).row("m") is None
