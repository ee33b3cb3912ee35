"""MiniWoB++: acts by element reference, seeded pages, the clock, pictures, copies, browser pool, and faults."""

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import games
from games.adapters import miniwob as adapter
from games.adapters.miniwob import MiniWob
from games.adapters.pool import Pool
from games.conformance.kit import check
from tests.factories.adapted import get_refusal_reason, make_dealt_game
from tests.factories.faults import FAULTS, FaultTarget, inject_faults

pytest.importorskip("miniwob")
HAS_BROWSER = shutil.which("chromedriver") is not None
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_BROWSER, reason="needs chromium-driver")]
start_game = partial(make_dealt_game, MiniWob)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Folder of the browsers' files. Its path is short, as Chromium's sockets need."""
    with tempfile.TemporaryDirectory(prefix="mw") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Pool of at most two browsers."""
    browser_pool = Pool(adapter._start_process, 2)
    monkeypatch.setattr(adapter, "POOL", browser_pool)
    yield browser_pool
    for browser in browser_pool.children:
        browser.close()


def find_reference(game: MiniWob, tag: str, text: str = "") -> int:
    """Return the reference of the first element with this tag and text."""
    return int(next(element["ref"] for element in game.elements if element["tag"] == tag and text in element["text"]))


def test_pages_pass_the_conformance_kit() -> None:
    findings = check(lambda: games.make("miniwob:click-button", max_turns=4), seeds=1, acts=20)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


def test_form_is_filled_by_reference_and_the_page_pays() -> None:
    game = start_game("miniwob:enter-text")
    name = game.public()["task"].split('"')[1]
    assert game.legal("agent") is None and "input text" in game.messages("agent")[0].text
    game.step(f"type {find_reference(game, 'input_text')} {name}")
    assert f"= {name}" in game.messages("agent")[-1].text
    game.step(f"click {find_reference(game, 'button')}")
    assert game.ended == "over" and game.payoffs() == {"agent": 1.0} and game.report()["success"] is True
    game.reset(seed=1)
    game.step(f"click {find_reference(game, 'button')}")
    assert game.ended == "over" and game.payoffs() == {"agent": 0.0} and game.report()["success"] is False


def test_page_has_no_time_limit() -> None:
    game = start_game("miniwob:enter-text")
    time.sleep(11)
    game.step(f"type {find_reference(game, 'input_text')} {game.public()['task'].split(chr(34))[1]}")
    game.step(f"click {find_reference(game, 'button')}")
    assert game.payoffs() == {"agent": 1.0}, "ended after ten seconds, or paid less for the time"


def test_typing_selects_an_option_of_a_list() -> None:
    game = start_game("miniwob:choose-list", seed=1)
    game.step(f"type {find_reference(game, 'select')} {game.public()['task'].split(' ')[1]}")
    game.step(f"click {find_reference(game, 'button')}")
    assert game.report()["success"] is True


@pytest.mark.parametrize("act", ["click 999", "click", "hover 3", "type 5", "press Sleep", "click 5; click 6", "ok"])
def test_impossible_act_changes_nothing(act: str) -> None:
    game = start_game("miniwob:enter-text", illegal="retry")
    before = game.elements
    game.step(act)
    assert game.infos["agent"]["valid"] is False and game.elements == before and game.env.acts == ()


def test_seed_decides_the_page_and_clone_is_independent() -> None:
    assert start_game("miniwob:click-button", 3).elements == start_game("miniwob:click-button", 3).elements
    game = start_game("miniwob:enter-text", 2)
    box = find_reference(game, "input_text")
    game.step(f"type {box} a")
    twin = game.clone()
    for either in (game, twin):
        either.step(f"type {box} b")
    assert game.elements == twin.elements and game.messages("agent") == twin.messages("agent")
    twin.step(f"click {find_reference(twin, 'button')}")
    assert twin.ended and not game.ended


def test_more_pages_than_browsers_share_them(pool: Pool) -> None:
    matches = [start_game("miniwob:click-button", seed) for seed in range(3)]
    for _ in range(2):
        for game in matches:
            game.step("press Tab")
    assert len(pool.children) == 2 and [len(game.env.acts) for game in matches] == [2, 2, 2]


def test_page_is_shown_as_a_picture() -> None:
    game = start_game("miniwob:click-button", view="both")
    (image,) = game.messages("agent")[0].images
    assert game.picture(image.hash).startswith(b"\x89PNG")


@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_match_with_a_failing_browser_is_retried(fault: str, pool: Pool) -> None:
    target = FaultTarget(
        game="miniwob:click-button", options={}, acts=["press Tab"], timeouts=[(adapter, "SECONDS")],
        pid=lambda _: pool.children[0].pid,
        inner=lambda tree: next((process for process in tree if process.name() == "chromium"), tree[-1]),
    )  # fmt: skip
    assert inject_faults(target, fault)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("miniwob:click-buton", {}, "did you mean 'click-button'?"),
        ("miniwob:click-button", {"view": "html"}, "view must be"),
        ("miniwob:click-button", {"clock": True}, "has no option 'clock'"),
    ],
)
def test_unknown_task_or_option_is_refused_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    assert message in get_refusal_reason(name, **options)


def test_missing_browser_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt-get install chromium chromium-driver" in get_refusal_reason("miniwob:click-button")
