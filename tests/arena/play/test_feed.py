"""The turn feed shows matches in flight while a run plays; it changes nothing and stops nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.play import feed as feeding
from arena.play.feed import Feed
from arena.play.match import MatchPlan
from arena.play.watchers import LoggingWatcher
from arena.records import Turn
from arena.store.feed import FEED, FeedReader, FeedWriter
from games.contracts import MatchId, Message
from tests.factories.labs import RecordingWatcher, make_experiment, read_log, read_weight_files, run_lab
from tests.factories.made_run import make_match

RECORD = make_match(1, 0)
TURN = RECORD.turns[0]


@pytest.fixture
def unlimited_feed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the feed take any share of the time."""
    monkeypatch.setattr(feeding, "MAX_TIME_SHARE", 1e9)


def make_plan(number: int = 0, iteration: int = 1) -> MatchPlan:
    return MatchPlan(
        identity=MatchId(iteration, number),
        game="negotiation",
        options={"talk": True},
        seed=7,
        seats=dict(RECORD.seats),
    )


def run_feed(tmp_path: Path, act: Callable[[Feed], None]) -> FeedReader:
    """Return a reader of the feed after `act` and one write, before the feed ends."""

    async def play() -> FeedReader:
        feed, reader = Feed(tmp_path), FeedReader(tmp_path)
        act(feed)
        await asyncio.sleep(2 * feeding.WRITE_SECONDS)
        reader.refresh()
        reader.rows = {id: reader.row(id) for id in reader.matches}  # type: ignore[attr-defined]
        feed.close()
        return reader

    return asyncio.run(play())


class FeedReadingWatcher(RecordingWatcher):
    """Watcher that reads the feed at every turn, as a page does now and then."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.reader, self.seen = FeedReader(run), dict[str, list[dict[str, Any]]]()

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        self.reader.refresh()
        for id, followed in self.reader.matches.items():
            row = self.reader.row(id)
            if not followed.over and row and row["turns"]:
                self.seen.setdefault(id, []).append(row)


@pytest.mark.slow
@pytest.mark.usefixtures("unlimited_feed_time")
def test_feed_shows_matches_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "WRITE_SECONDS", 0.0)
    watcher, settings = (
        FeedReadingWatcher(tmp_path / "fed"),
        make_experiment("game.options.illegal=retry", "play.in_flight=3"),
    )
    feed = Feed(tmp_path / "fed")
    run_lab(tmp_path / "fed", settings, LoggingWatcher(watcher, feed))  # type: ignore[arg-type]
    feed.close()
    run_lab(tmp_path / "bare", settings)
    assert not (tmp_path / "fed" / FEED).exists()
    assert read_log(tmp_path / "fed") == read_log(tmp_path / "bare")
    assert read_weight_files(tmp_path / "fed", 2) == read_weight_files(tmp_path / "bare", 2)
    rows = {row["id"]: row for row in read_log(tmp_path / "fed")}
    assert len(watcher.seen) > 4
    for id, looks in watcher.seen.items():
        for look in looks:
            logged = rows[id]["turns"][: len(look["turns"])]
            assert [turn["raw"] for turn in look["turns"]] == [turn["raw"] for turn in logged]
            assert look["seats"]["opener"]["policy"] == "shared" and look["seed"] == rows[id]["seed"]


@pytest.mark.usefixtures("unlimited_feed_time")
def test_feed_drops_ended_matches_and_committed_iterations(tmp_path: Path) -> None:
    def act(feed: Feed) -> None:
        for number in range(3):
            feed.add_turn(make_plan(number), TURN)
        feed._write()
        feed.add_turn(make_plan(0), TURN._replace(index=1))
        feed.add_turn(make_plan(3, iteration=2), TURN)
        feed.end_match("0001-0001")
        feed.add_turn(make_plan(9), TURN._replace(index=4))  # the feed missed its beginning
        feed.end_match("0001-0009")

    reader = run_feed(tmp_path, act)
    assert {id: (len(make_match.turn_spans), make_match.over) for id, make_match in reader.matches.items()} == {
        "0001-0000": (2, False), "0001-0001": (1, True), "0001-0002": (1, False), "0002-0003": (1, False)
    }  # fmt: skip
    reader = run_feed(tmp_path, lambda feed: (act(feed), feed.end_iteration(1))[0])
    assert [id for id, make_match in reader.matches.items() if not make_match.over] == ["0002-0003"]
    assert not (tmp_path / FEED).exists()


@pytest.mark.parametrize(
    "turn",
    [
        TURN._replace(raw="\ud800 half", public="\ud83d"),
        TURN._replace(raw="<script>\u2028\x1b[2J\u202e", messages=(Message.of("a\nb", '"}\n{"feed":1}'),)),
        TURN._replace(raw="x" * 10**6, situation="y" * 10**6),
        TURN._replace(messages=tuple(Message.of("referee", "z" * 3000) for _ in range(500))),
    ],
)
def test_any_text_is_one_short_line(tmp_path: Path, turn: Turn) -> None:
    reader = run_feed(tmp_path, lambda feed: feed.add_turn(make_plan(), turn))
    (row,) = reader.rows.values()  # type: ignore[attr-defined]
    assert len(row["turns"]) == 1 and len(row["turns"][0]["raw"]) < 3000


@pytest.mark.parametrize("value", [object(), "much"])
def test_unserialisable_match_is_left_out_alone(tmp_path: Path, value: Any) -> None:
    def act(feed: Feed) -> None:
        feed.add_turn(make_plan(0), TURN._replace(rewards={"deal": value}))
        feed.add_turn(make_plan(1), TURN)
        feed.add_turn(replace(make_plan(2), options={"x": object()}), TURN)

    reader = run_feed(tmp_path, act)
    assert len(reader.rows["0001-0001"]["turns"]) == 1  # type: ignore[attr-defined]
    assert not any(reader.rows[id]["turns"] for id in reader.rows if id != "0001-0001")  # type: ignore[attr-defined]


def test_fast_turns_leave_some_matches_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the test's own clock: 1 ms per turn, 10 ms per write of the feed."""
    now, write = [0.0], FeedWriter.write

    def write_slowly(writer: FeedWriter, *given: Any) -> None:
        now[0] += 0.010
        write(writer, *given)

    monkeypatch.setattr(feeding, "perf_counter", lambda: now[0])
    monkeypatch.setattr(FeedWriter, "write", write_slowly)
    feed, followed = Feed(tmp_path), 0
    for number in range(10_000):
        now[0] += 0.001
        feed.add_turn(make_plan(number), TURN)
        if number % 10 == 9 and feed._waiting:
            followed += len({id for id, _ in feed._waiting})
            feed._write()
        feed.end_match(f"0001-{number - 20:04d}")
    feed.close()
    assert feed._seconds_spent <= feeding.MAX_TIME_SHARE * now[0] + 0.011
    assert 20 < followed < 200


def test_write_error_ends_only_the_feed(tmp_path: Path) -> None:
    def act(feed: Feed) -> None:
        (tmp_path / FEED).mkdir()
        feed.add_turn(make_plan(), TURN)

    assert run_feed(tmp_path, act).matches == {}
    (tmp_path / FEED).rmdir()
    (tmp_path / FEED).symlink_to(tmp_path / "elsewhere")
    assert len(run_feed(tmp_path, lambda feed: feed.add_turn(make_plan(), TURN)).matches) == 1
    assert not (tmp_path / "elsewhere").exists()
