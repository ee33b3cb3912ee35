"""Hostile logs: links, pipes, odd names, edited ids, cut files, images, and a reader beside a writer."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.players.model import ScriptedPlayer
from arena.cli.loop import wait
from arena.errors import StoreError
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import MatchRecord, Seating, trained_trajectories
from arena.store import contents
from arena.store.blobs import Blobs
from arena.store.files import write_atomic
from arena.store.lines import LineWriter
from arena.store.matchlog import MatchLog
from arena.store.reader import LogReader
from arena.store.schema import SCHEMA_VERSION
from games.contracts import MAX_BRANCHES, MAX_TURNS, Image, MatchId, Message, View
from tests.factories.store import make_record
from tests.games.gallery import Gallery

PNG = b"\x89PNG of the log"
IMAGE = Image(hashlib.sha256(PNG).hexdigest(), "image/png", 4, 4)


def make_record_with_image(iteration: int, number: int, image: bytes = PNG) -> MatchRecord:
    """Return a match whose turn has an image."""
    plain = make_record(iteration, number)
    named_image = replace(IMAGE, hash=hashlib.sha256(image).hexdigest())
    turn = plain.turns[0]._replace(messages=(Message.of("referee", "look", [named_image]),))
    return replace(plain, turns=(turn,), pictures={named_image.hash: image})


# -- irregular files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["0001.jsonl", "../metrics.jsonl"])
@pytest.mark.parametrize("kind", ["link", "endless", "pipe"])
def test_nothing_is_written_through_irregular_files(tmp_path: Path, name: str, kind: str) -> None:
    """A link's target keeps its unfinished line, and an endless device is not read into memory."""
    (tmp_path / "log").mkdir()
    precious, path = tmp_path / "precious", tmp_path / "log" / name
    precious.write_text("a line without an end")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero" if kind == "endless" else precious)
    with pytest.raises(StoreError, match=r"is not a regular file: remove it|no regular file") as error:
        LineWriter(path)
    assert "\n" not in str(error.value) and precious.read_text() == "a line without an end"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_unfinished_file_is_never_followed(tmp_path: Path, kind: str) -> None:
    victim, temporary = tmp_path / "victim", tmp_path / ".0001.parquet.tmp"
    victim.write_text("precious")
    os.mkfifo(temporary) if kind == "pipe" else temporary.symlink_to(victim)
    write_atomic(tmp_path / "0001.parquet", b"whole")
    assert victim.read_text() == "precious" and (tmp_path / "0001.parquet").read_bytes() == b"whole"
    assert not temporary.is_symlink() and not temporary.exists()


def test_dangling_sealed_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0001.parquet").symlink_to(tmp_path / "gone.parquet")
    for read in (lambda: LogReader(tmp_path).read(1), lambda: LogReader(tmp_path).table(1, ["id"])):
        with pytest.raises(StoreError, match=r"0001\.parquet cannot be read"):
            read()


@pytest.mark.parametrize("name", ["²²²².parquet", "٠٠٠٢.jsonl", "00002.jsonl", f"{10**20}.parquet", "0002.jsonl.bak"])
def test_files_of_other_names_are_ignored(tmp_path: Path, name: str) -> None:
    """They cause no error, are no iteration, and are not removed with later ones."""
    log = MatchLog(tmp_path / "log")
    for k in (1, 2):
        log.extend([make_record(k, 0)])
    (tmp_path / "log" / name).write_text("a stranger's")
    assert log.iterations() == [1, 2] and log.discard_after(1) == [2]
    assert sorted(file.name for file in log.folder.iterdir()) == sorted(["0001.jsonl", name])
    assert contents.fingerprint_files(tmp_path, 9, {}) == {}


# -- identity of a match ------------------------------------------------------------------------------------


def test_identity_fits_the_log_or_is_refused(tmp_path: Path) -> None:
    deepest = MatchId(10**9 - 1, 10**9 - 1, MAX_TURNS - 1)
    for _ in range(MAX_BRANCHES):
        deepest = deepest.branch(MAX_TURNS - 1)
    log = MatchLog(tmp_path)
    log.extend([make_record(identity=deepest)])
    log.seal(deepest.iteration)
    (row,) = LogReader(tmp_path).read(deepest.iteration)
    assert MatchRecord.from_json(row).identity == deepest == MatchId.parse(row["id"])
    wrong: list[Callable[[], MatchId]] = [
        lambda: deepest.branch(0), lambda: MatchId(10**9, 0), lambda: MatchId(0, 10**9),
        lambda: MatchId(0, 0, MAX_TURNS), lambda: MatchId(0, 0).branch(MAX_TURNS),
    ]  # fmt: skip
    for make in wrong:
        with pytest.raises(ValueError, match=r"at most 64 deep|0 or more, iteration and deal below"):
            make()


def test_match_ends_at_the_largest_turn_number(tmp_path: Path) -> None:
    class EndlessGame(Gallery):
        """Game that never ends and records nothing."""

        def play(self, seat: str, act: str) -> str:
            return act

    class ConstantPlayer:
        waits = False

        def act(self, view: View) -> str:
            return "A"

    seats = {"visitor": Seating("", "random", 0, False, "brain")}
    plan = MatchPlan(identity=MatchId(1, 0), game="gallery", options={}, seed=0, seats=seats)
    for limits in (Limits(), Limits(turns=10**6)):
        ended_match = wait(play_match(plan, EndlessGame(), {"visitor": ScriptedPlayer(ConstantPlayer())}, limits))
        assert (
            ended_match.reason == f"turn limit: {MAX_TURNS} turns taken"
            and ended_match.turns[-1].index == MAX_TURNS - 1
        )
    log = MatchLog(tmp_path)
    log.extend([replace(ended_match, turns=ended_match.turns[-2:], streams={})])
    log.seal(1)
    assert LogReader(tmp_path).read(1)[0]["turns"][-1]["index"] == MAX_TURNS - 1


EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "below 0": ({"deal": -1, "id": "0001--001"}, "0 or more"),
    "enormous": ({"deal": 10**30}, "0001.jsonl: a row does not fit"),
    "a text": ({"iteration": "1"}, "0001.jsonl: a row does not fit"),
    "missing": ({"deal": None}, "cannot be read"),
    "its own parent": ({"parent": "0001-0000", "parent_turn": 0}, "does not match its columns, 0001-0000-b0"),
    "a circle": (
        {"id": "0001-0000-b0", "parent": "0001-0000-b0", "parent_turn": 0},
        "match its columns, 0001-0000-b0-b0",
    ),
    "endless parents": ({"parent": "0001-0000" + "-b1" * 10**5, "parent_turn": 1}, "is no match id"),
    "of another deal": ({"parent": "0001-0009", "parent_turn": 1}, "its parent, 0001-0009"),
    "no version": ({"schema": True}, "schema version True"),
    "half a version": ({"schema": float(SCHEMA_VERSION)}, "schema version 4.0"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_line_is_refused_in_one_line(tmp_path: Path, edit: str) -> None:
    log, (changes, message) = MatchLog(tmp_path), EDITS[edit]
    log.extend([make_record(1, 0)])
    path = tmp_path / "0001.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) + "\n")
    with pytest.raises(StoreError) as error:
        for row in LogReader(tmp_path).read(1):
            MatchRecord.from_json(row)
    assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500


def test_branch_without_its_parent_is_read(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record(identity=MatchId(1, 0, 3).branch(4))])
    log.seal(1)
    (found,) = trained_trajectories(map(MatchRecord.from_json, LogReader(tmp_path).read(1)))
    assert (found.match, found.parent, found.parent_turn) == ("0001-0000-r3-b4", "0001-0000-r3", 4)


@pytest.mark.parametrize("keep", [0, 1, 7, 100, 1000, -1, -9])
def test_a_sealed_file_that_was_cut_is_refused(tmp_path: Path, keep: int) -> None:
    log = MatchLog(tmp_path)
    log.extend([make_record_with_image(1, 0)])
    log.seal(1)
    path = tmp_path / "0001.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    for read in (lambda: LogReader(tmp_path).read(1), lambda: LogReader(tmp_path).table(1, ["id", "turns.messages"])):
        with pytest.raises(StoreError, match=r"0001\.parquet cannot be read") as error:
            read()
        assert "\n" not in str(error.value)


# -- blobs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("existing", ["other bytes", "cut", "a link to other bytes", "a link to the right bytes"])
def test_wrong_blob_is_replaced_by_the_right_bytes(tmp_path: Path, existing: str) -> None:
    """Otherwise a logged match would lose its image although the bytes are at hand."""
    log, path = MatchLog(tmp_path), tmp_path / "blobs" / IMAGE.hash
    path.parent.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(PNG if "right" in existing else b"precious")
    if "link" in existing:
        path.symlink_to(elsewhere)
    else:
        path.write_bytes(PNG[:-1] if existing == "cut" else b"other")
    log.extend([make_record_with_image(1, 0)])
    assert LogReader(tmp_path).blobs.get(IMAGE.hash) == PNG and not path.is_symlink()
    assert elsewhere.read_bytes() == (PNG if "right" in existing else b"precious")


def test_match_with_an_unwritable_blob_is_not_logged(tmp_path: Path) -> None:
    log = MatchLog(tmp_path)
    (tmp_path / "blobs" / IMAGE.hash).mkdir(parents=True)
    with pytest.raises(StoreError, match="Is a directory while writing"):
        log.extend([make_record_with_image(1, 0)])
    assert log.iterations() == []


def test_a_blob_that_is_removed_while_a_run_writes_is_written_again(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    blobs.put_all({IMAGE.hash: PNG})
    (tmp_path / IMAGE.hash).unlink()
    blobs.put_all({IMAGE.hash: PNG})
    assert blobs.get(IMAGE.hash) == PNG


@pytest.mark.slow
def test_repeated_images_are_stored_once(tmp_path: Path) -> None:
    log, images = MatchLog(tmp_path), [f"image {i}".encode() for i in range(3000)]
    log.extend([make_record_with_image(1, i, image) for i, image in enumerate(images)])
    log.extend([make_record_with_image(1, 3000 + i, image) for i, image in enumerate(images)])
    log.seal(1)
    found = LogReader(tmp_path).images(1)
    assert found == {path.name for path in (tmp_path / "blobs").iterdir()} and len(found) == len(images)


# -- a reader beside a writer ------------------------------------------------------------------------------


def test_reader_beside_a_writer_sees_complete_growing_data(tmp_path: Path) -> None:
    """Rows and columns of open and sealed iterations, with all their images."""
    log, reader, done = MatchLog(tmp_path), LogReader(tmp_path), threading.Event()

    def write() -> None:
        for k in range(1, 9):
            for i in range(12):
                log.extend([make_record_with_image(k, i, f"{k} {i}".encode())])
            log.seal(k)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    counts, seen = [0], 0
    while not done.is_set() or not seen:
        finished = done.is_set()
        rows = [row for k in reader.iterations() for row in reader.read(k)]
        records = [MatchRecord.from_json(row) for row in rows]
        assert len({record.id for record in records}) == len(records)
        assert sum(len(reader.table(k, ["id"])) for k in reader.iterations()) >= len(records)
        for k in reader.iterations():
            assert all(map(reader.blobs.has, reader.images(k)))
        counts.append(len(records))
        seen += finished
    writer.join()
    assert counts == sorted(counts) and counts[-1] == 96
