"""Matches that people play in the page: they end when the page is closed or on request."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.view import app, seats
from analysis.view.services import Services
from tests.factories.browser import open_chromium
from tests.factories.page import Page
from tests.factories.view import Client, serve_page

ASK = {"ask": {"seat": "first", "turn": 0, "rules": "", "messages": [], "words": "", "facts": [], "legal": ["BET"]}}
CHILD = f"""import signal, sys
if 'deaf' in sys.argv[2]: signal.signal(signal.SIGTERM, signal.SIG_IGN)
while 'endless' in sys.argv[2]: print('{{}}', flush=True)
print({json.dumps(ASK)!r}, flush=True)
sys.stdin.read()
"""
SERVICES = Services(command=[sys.executable, "-c", CHILD])


def begin_match(client: Client, code: int = 200, game: str = "kuhn_poker") -> Any:
    return client.post("/api/play", {"game": game, "place": 0, "who": "random"}, code)


def wait_until(holds: Callable[[], Any]) -> None:
    ends = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path, services=SERVICES)


def test_abandoned_matches_end_and_make_room(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pages stop polling; a polled match is kept."""
    monkeypatch.setattr(app, "SWEEP_SECONDS", 0.05)
    with client.client:
        polled = begin_match(client)["id"]
        for _ in range(2):
            begin_match(client)
        assert "end one of them" in begin_match(client, 400)["error"]
        monkeypatch.setattr(seats, "REQUEST_TIMEOUT", 1.0)
        for one in client.get("/api/play"):
            client.get(f"/api/play/{one['id']}")

        def others_are_gone() -> bool:
            assert client.get(f"/api/play/{polled}")["open"]
            return [one["id"] for one in client.get("/api/play")] == [polled]

        wait_until(others_are_gone)
        begin_match(client)
        client.post(f"/api/play/{polled}/end", {})


def test_match_nobody_polls_is_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr("analysis.view.seats.Seats.begin.__defaults__", (0.1,))
    with client.client:
        begin_match(client)
        wait_until(lambda: not client.get("/api/play"))


def test_a_match_is_ended_at_once(client: Client) -> None:
    id = begin_match(client)["id"]
    assert client.get("/api/play") == [{"id": id, "title": "kuhn_poker against random"}]
    client.post(f"/api/play/{id}/end", {})
    wait_until(lambda: not client.get("/api/play"))
    assert not client.get(f"/api/play/{id}")["open"]
    client.post("/api/play/nothing/end", {}, 400)


def test_a_page_that_is_loaded_again_keeps_its_match(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(app, "RELOAD_SECONDS", 0.5)
    with client.client:
        left, loaded = begin_match(client)["id"], begin_match(client)["id"]
        for id in (left, loaded):
            client.post(f"/api/play/{id}/end", {"soon": True})
        client.get(f"/api/play/{loaded}")
        wait_until(lambda: [one["id"] for one in client.get("/api/play")] == [loaded])
        client.post(f"/api/play/{loaded}/end", {})


def test_a_child_that_does_not_end_is_killed_and_one_that_never_stops_talking_is_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(seats, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(seats, "RELOAD_SECONDS", 0.0)
    with client.client:
        deaf = begin_match(client, game="deaf")["id"]
        wait_until(lambda: client.get(f"/api/play/{deaf}")["lines"])
        begin_match(client, game="endless")
        client.post(f"/api/play/{deaf}/end", {})
        wait_until(lambda: not client.get("/api/play"))


def test_many_matches_one_after_the_other_are_not_kept_for_good(client: Client) -> None:
    for _ in range(seats.MAX_STORED + 4):
        id = begin_match(client)["id"]
        client.post(f"/api/play/{id}/end", {})
        wait_until(lambda: not client.get("/api/play"))
    begin_match(client)
    assert client.get(f"/api/play/{id}")


@pytest.mark.slow
def test_the_page_ends_its_match_by_a_button_and_when_it_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And resumes it after a reload, or from the list of running matches."""
    monkeypatch.setattr(app, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(app, "RELOAD_SECONDS", 4.0)
    with open_chromium() as browser, serve_page(tmp_path, services=SERVICES) as link:
        page = Page(browser, link)
        page.open_route("#/play?game=kuhn_poker", "#begin")
        page.view.click("#begin")
        page.view.wait_for_selector("#leave")
        page.view.reload()
        page.view.wait_for_selector(".legal button")
        page.view.click("#leave")
        page.view.wait_for_selector("#begin")
        page.wait_until("!document.querySelector('#played')")
        page.view.click("#begin")
        page.view.wait_for_selector(".legal button")
        page.open_route("#/play", "#played")
        page.view.click("#played button")
        page.view.wait_for_selector(".legal button")
        other = Page(browser, link)
        other.open_route("#/play", "#played")
        page.close()
        other.wait_until("!document.querySelector('#played')")
        other.view.click("#begin")
        other.view.wait_for_selector(".legal button")
        other.open_route("#/play", "#played")
        other.view.click("#played .ends")
        other.wait_until("!document.querySelector('#played')")
        other.close()
