"""A live run in a real browser: matches grow turn by turn, and a run is stopped and resumed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.play.feed import _encode_line
from arena.play.match import MatchPlan
from arena.records import Turn
from arena.store import checkpoints
from arena.store.feed import FEED, FeedWriter
from games.contracts import MatchId
from tests.factories.browser import open_chromium
from tests.factories.children import Child
from tests.factories.commands import TINY
from tests.factories.hostile_run import TEXTS
from tests.factories.made_run import make_match, make_run
from tests.factories.page import Page
from tests.factories.view import Client, serve_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as opened:
        yield opened


class LiveFeed:
    """Feed of a live run, written turn by turn."""

    def __init__(self, run: Path) -> None:
        self.writer = FeedWriter(run)

    def begin(self, number: int, **changed: Any) -> None:
        record = make_match(2, number)
        plan = MatchPlan(
            identity=MatchId(2, number),
            game="negotiation",
            options={"talk": True},
            seed=number,
            seats=dict(record.seats),
        )
        self.writer.write([(plan.id, _encode_line(plan.id, replace(plan, **changed)))])

    def turn(self, number: int, turn: Turn) -> None:
        id = f"0002-{number:04d}"
        self.writer.write([(id, _encode_line(id, turn))])


def test_a_match_in_flight_grows_turn_by_turn_and_is_then_the_logs(browser: Any, tmp_path: Path) -> None:
    run, record = make_run(tmp_path / "run", iterations=2), make_match(2, 3)
    fed = LiveFeed(tmp_path / "run")
    with run.lock(), serve_page(tmp_path) as link:
        page = Page(browser, link)
        page.view.evaluate("window.same = 1")
        page.open_route("#/run/run/matches", "table.matches tbody tr")
        fed.begin(3)
        page.view.wait_for_selector(".flight li >> text=turn 0")
        page.view.click(".flight a")
        page.view.wait_for_selector(".outcome .live")
        assert "run/run/match/0002-0003" in page.view.url
        fed.turn(3, record.turns[0])
        page.wait_until("document.querySelectorAll('article.turn').length === 1")
        assert "The deal" in page.text(".deal")
        assert page.view.query_selector("text=fork from here") is None
        fed.turn(3, record.turns[1])
        page.wait_until("document.querySelectorAll('article.turn.at')[0]?.id === 'turn-1'")
        run.log.extend([record])
        fed.writer.write([], over=["0002-0003"])
        page.wait_until(
            "!document.querySelector('.outcome .live') && document.querySelector('.paid').textContent === '5'"
        )
        page.open_route("#/run/run/matches", "table.matches tbody tr >> text=0002-0003")
        page.wait_until("!document.querySelector('.flight')")
        assert page.view.evaluate("window.same") == 1
        page.close()


def test_live_text_is_escaped(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", iterations=2)
    fed = LiveFeed(tmp_path / "run")
    for number, text in enumerate(TEXTS):
        fed.begin(number, options={text[:100]: text})
        fed.turn(number, make_match(2, number).turns[0]._replace(raw=text, public=text, private=text, action=text))
    with run.lock(), serve_page(tmp_path) as link:
        page = Page(browser, link, 400)
        page.open_route("#/run/run/matches", ".flight li")
        assert int(page.text(".flight .live")) > 0.8 * len(TEXTS)  # one of a megabyte may be left out
        for route, selector in (("#/run/run", ".flight li"), ("#/run/run/match/0002-0001", "article.turn")):
            page.open_route(route, selector)
            wide, window = page.view.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            assert wide <= window and page.view.evaluate("window.pwned") is None
            assert "\u202e" not in page.text("body") and "\x1b" not in page.text("body")
        page.close()


def test_only_a_live_run_has_matches_in_flight(tmp_path: Path) -> None:
    """A killed run's feed is stale, but its match can still be seen."""
    run = make_run(tmp_path / "run", iterations=2)
    fed = LiveFeed(tmp_path / "run")
    fed.begin(3)
    asks = Client(tmp_path)
    assert asks.get("/api/runs/run/flight") == {"live": False, "total": 0, "matches": []}
    with run.lock():
        (one,) = asks.get("/api/runs/run/flight")["matches"]
        assert one["match"] == "0002-0003" and one["turns"] == 0
        (tmp_path / "run" / FEED).write_text('{"feed":"x"}\n{"match": 3}\n[[[[\n')
        assert asks.get("/api/runs/run/flight")["total"] == 0
        assert "no match" in asks.get("/api/runs/run/matches/0002-0003", 404)["error"]


@pytest.mark.slow
def test_a_real_run_is_stopped_and_resumed_from_the_page(browser: Any, tmp_path: Path) -> None:
    """By the page's buttons on `arena run selfplay`."""
    run, planned = tmp_path / "run", 300
    command = [str(planned) if part == "3" else part for part in TINY]
    child = Child(tmp_path / "said", *command, "--out", run)
    child.wait_until(lambda: bool(run.exists() and checkpoints.newest_committed(run) > 1), limit=400)
    with serve_page(tmp_path) as link:
        page = Page(browser, link)
        page.open_route("#/run/run", "#control >> text=stop")
        page.view.click("#control")
        page.view.click("#sure")
        result = child.end()
        assert "arena resume" in result.err and result.code not in (0, 2)
        done = checkpoints.newest_committed(run)
        assert 1 < done < planned
        page.view.wait_for_selector("#control >> text=resume")
        assert not (run / FEED).exists()
        page.view.click("#control")
        page.view.click("#sure")
        page.view.set_default_timeout(300_000)  # it loads all that a run loads
        page.view.wait_for_selector("h1 .live")
        page.wait_until(
            f"Number(document.querySelector('.head .quiet').textContent.match(/([0-9]+) of/)[1]) > {done + 1}"
        )
        page.view.click("#control")
        page.view.click("#sure")
        page.view.wait_for_selector("#control >> text=resume")
        page.close()
    numbers = [json.loads(line)["iteration"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > done + 1
