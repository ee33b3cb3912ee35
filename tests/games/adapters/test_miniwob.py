"""MiniWoB++: acts by reference, pages by seed, the clock, pictures, copies, the pool of browsers, and faults."""

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
from tests.factories.faults import FAULTS, inject_faults

pytest.importorskip("miniwob")
HAS_BROWSER = shutil.which("chromedriver") is not None
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_BROWSER, reason="needs chromium-driver")]
started = partial(make_dealt_game, MiniWob)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Folder of the browsers' files. Its path is short, as Chromium's sockets need."""
    with tempfile.TemporaryDirectory(prefix="mw") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Pool of at most two browsers."""
    own = Pool(adapter._start_process, 2)
    monkeypatch.setattr(adapter, "POOL", own)
    yield own
    for browser in own.children:
        browser.close()


def ref(game: MiniWob, kind: str, text: str = "") -> int:
    """Return the reference of an element by its kind and text."""
    return int(next(each["ref"] for each in game.elements if each["tag"] == kind and text in each["text"]))


def test_pages_keep_our_promises() -> None:
    findings = check(lambda: games.make("miniwob:click-button", max_turns=4), seeds=1, acts=20)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


def test_a_form_is_filled_by_reference_and_the_page_pays() -> None:
    game = started("miniwob:enter-text")
    name = game.public()["task"].split('"')[1]
    assert game.legal("agent") is None and "input text" in game.messages("agent")[0].text
    game.step(f"type {ref(game, 'input_text')} {name}")
    assert f"= {name}" in game.messages("agent")[-1].text
    game.step(f"click {ref(game, 'button')}")
    assert game.ended == "over" and game.payoffs() == {"agent": 1.0} and game.report()["success"] is True
    game.reset(seed=1)
    game.step(f"click {ref(game, 'button')}")
    assert game.ended == "over" and game.payoffs() == {"agent": 0.0} and game.report()["success"] is False


def test_the_clock_of_a_page_is_off() -> None:
    game = started("miniwob:enter-text")
    time.sleep(11)
    game.step(f"type {ref(game, 'input_text')} {game.public()['task'].split(chr(34))[1]}")
    game.step(f"click {ref(game, 'button')}")
    assert game.payoffs() == {"agent": 1.0}, "neither ended after ten seconds nor paid less for the time"


def test_typing_chooses_an_option_of_a_list() -> None:
    game = started("miniwob:choose-list", seed=1)
    game.step(f"type {ref(game, 'select')} {game.public()['task'].split(' ')[1]}")
    game.step(f"click {ref(game, 'button')}")
    assert game.report()["success"] is True


@pytest.mark.parametrize("act", ["click 999", "click", "hover 3", "type 5", "press Sleep", "click 5; click 6", "ok"])
def test_what_cannot_be_done_changes_nothing(act: str) -> None:
    game = started("miniwob:enter-text", illegal="retry")
    before = game.elements
    game.step(act)
    assert game.infos["agent"]["valid"] is False and game.elements == before and game.env.acts == ()


def test_the_seed_decides_and_a_clone_goes_on_alone() -> None:
    assert started("miniwob:click-button", 3).elements == started("miniwob:click-button", 3).elements
    game = started("miniwob:enter-text", 2)
    box = ref(game, "input_text")
    game.step(f"type {box} a")
    twin = game.clone()
    for each in (game, twin):
        each.step(f"type {box} b")
    assert game.elements == twin.elements and game.messages("agent") == twin.messages("agent")
    twin.step(f"click {ref(twin, 'button')}")
    assert twin.ended and not game.ended


def test_more_pages_than_browsers_take_turns(pool: Pool) -> None:
    crowd = [started("miniwob:click-button", seed) for seed in range(3)]
    for _ in range(2):
        for game in crowd:
            game.step("press Tab")
    assert len(pool.children) == 2 and [len(game.env.acts) for game in crowd] == [2, 2, 2]


def test_a_page_is_shown() -> None:
    game = started("miniwob:click-button", view="both")
    (image,) = game.messages("agent")[0].images
    assert game.picture(image.hash).startswith(b"\x89PNG")


@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_match_whose_browser_fails_is_played_again(fault: str, pool: Pool, folder: Path) -> None:
    reasons = inject_faults(
        "miniwob:click-button", {"max_turns": 3}, ["press Tab"], fault, lambda _: pool.children[0].pid,
        (adapter, "SECONDS"), inner=lambda tree: next(each for each in tree if each.name() == "chromium"),
    )  # fmt: skip
    assert len(pool.children) == 1, reasons
    pool.children[0].close()
    assert [*folder.iterdir()] == [], "nor do its files stay"


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("miniwob:click-buton", {}, "did you mean 'click-button'?"),
        ("miniwob:click-button", {"view": "html"}, "view must be"),
        ("miniwob:click-button", {"clock": True}, "has no option 'clock'"),
    ],
)
def test_what_is_no_task_is_told_in_a_line(name: str, options: dict[str, Any], told: str) -> None:
    assert told in get_refusal_reason(name, **options)


def test_without_a_browser_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt-get install chromium chromium-driver" in get_refusal_reason("miniwob:click-button")
