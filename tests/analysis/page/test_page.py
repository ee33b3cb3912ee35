"""What a stranger sees of a run: one sentence, three tiles, six rows, plain names; small, legible, at any width."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis.page import learned
from analysis.page.names import NAMES, THEORY, named
from analysis.report import report
from arena.cli.dealt import dealt, theory
from arena.store.contents import METRICS, PANEL
from games import GAMES
from tests.factories.browser import chromium, widths
from tests.factories.commands import arena
from tests.factories.contrast import contrast
from tests.factories.made_run import make_run
from tests.factories.spoken_run import recorded, spoken

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example" / "negotiation"
STYLE = (Path(analysis.__file__).parent / "templates" / "report.css").read_text("utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a real run, as the command writes it."""
    out = tmp_path_factory.mktemp("page") / "page.html"
    arena("report", str(EXAMPLE), "--out", str(out))
    return out.read_text("utf-8")


def part(page: str, start: str, end: str) -> str:
    return page.partition(start)[2].partition(end)[0]


def test_a_sentence_and_three_tiles_stand_on_top(page: str) -> None:
    lead = part(page, '<p class="lead">', "</p>")
    assert lead == "Over 12 iterations and 768 matches of negotiation, deals rose from 20\u00a0% to 75\u00a0%."
    tiles = re.findall(r'<section class="tile (\w+)"><h2 title="([^"]+)">([^<]+)', page)
    assert [tile[:2] for tile in tiles] == [("better", "deal"), ("better", "learners payoff"), ("better", "efficiency")]
    assert page.index("lead") < page.index("tiles") < page.index('<main id="main">')


def test_six_rows_are_seen_and_the_rest_is_folded(page: str) -> None:
    figures = part(page, '<h2 id="figures">', '<h2 id="pictures">')
    seen, *folded = figures.split("<details>")
    assert seen.count('<th scope="row"') == learned.ROWS and len(folded) == 2
    assert all(re.search(r'<th scope="row" title="([^"]+)">', fold) for fold in folded)
    assert part(page, '<h2 id="settings">', "</main>").lstrip().startswith("Settings</h2>\n<details>")


def test_names_are_plain_words_with_the_key_beside_them(page: str) -> None:
    assert 'title="learn.shared.kl">distance from the reference (KL), shared</th>' in page
    text = re.sub(r"<[^>]*>", " ", part(page, "<body>", '<h2 id="settings">'))
    assert not re.findall(r"\b(?:learn|report|selection|win_rate|ratings)\.\w+", text)


@pytest.mark.parametrize("name", ["metrics.jsonl"])
def test_every_metric_of_a_run_has_a_name_of_its_own(name: str) -> None:
    (row, *_) = (EXAMPLE / name).read_text("utf-8").splitlines()
    keys = set()
    for key, value in json.loads(row).items():
        keys |= {f"{key}.{inner}" for inner in value} if isinstance(value, dict) and key != "learn" else {key}
    keys |= {f"learn.shared.{inner}" for inner in json.loads(row)["learn"]["shared"]}
    own = [key.removeprefix("report.") for key in keys - {"iteration", "turns", "learn"}]
    assert [key for key in own if not any(re.fullmatch(pattern, key) for pattern in NAMES)] == []


def test_the_better_direction_is_known() -> None:
    assert [named(key).better for key in ("report.deal", "failed_rate", "report.turns")] == ["more", "less", ""]
    assert named("kuhn_poker.valid_rate") == ("kuhn_poker: valid acts of all turns", "more")


def test_theorys_names_are_those_that_games_state() -> None:
    assert {*THEORY} <= {name for game in GAMES.values() for name in game.theory}


def test_every_role_is_drawn(page: str) -> None:
    for picture, lines in (
        ("Payoff by seat", ("opener", "responder")),
        ("Reward by role", ("nano opener", "nano responder")),
    ):
        drawing = part(page, f">{picture}</figcaption>", "</svg>")
        assert re.findall(r'class="label s\d">([^<]+)', drawing) == [*lines]
    assert "Nash bargain, mean" in part(page, ">Payoff by seat</figcaption>", "</svg>")


def test_a_match_begins_with_its_deal(page: str) -> None:
    shown = part(page, '<h2 id="matches">', '<h2 id="settings">').split('<details class="match"')[1:]
    assert len(shown) == 6
    for match in shown:
        deal = part(match, '<dl class="deal">', "</dl>")
        assert re.search(r"pool</span> books \d, hats \d, balls \d", deal) and deal.count("values</span>") == 2
        assert match.index('<dl class="deal">') < match.index("<ol>")


def test_what_was_dealt_is_what_the_game_deals() -> None:
    found = dealt("kuhn_poker", '{"talk": false}', 7, [("first", "PASS"), ("second", "PASS")])
    game = GAMES["kuhn_poker"](talk=False)
    game.reset(seed=7)
    assert {seat: found[seat]["card"] for seat in game.seats} == {s: game.private(s)["card"] for s in game.seats}
    assert theory("kuhn_poker") == {"value": -1 / 18}


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("mine.py:Game", "{}"),
        ("negotiation", "["),
        ("negotiation", '{"max_turns": -1}'),
        ("<script>", "{}"),
        ("maze", "[]"),
    ],
)
def test_a_deal_that_cannot_be_known_is_left_out(game: str, options: str) -> None:
    """A file of the run's own is never run for it."""
    assert dealt(game, options, 1, []) == {} or game == "maze"
    assert theory("mine.py:Game") == {}


def panel_row(iteration: int, payoff: float) -> str:
    cell = {"member": "naive", "seat": "opener", "payoff": [payoff, payoff + 1, payoff + 2], "valid": [1.0, 1.0, 0.5]}
    cell |= {"best_response": [8.0, 8.0, 8.0], "deal": [1.0, 1.0, 0.0]}
    row = {
        "iteration": iteration,
        "contender": "shared",
        "panel": "p",
        "key": "k",
        "game": "negotiation",
        "options": {},
    }
    return json.dumps(row | {"seed": 0, "deals": 3, "cells": [cell]}) + "\n"


def test_a_panel_comes_first_and_beside_what_the_best_response_earns(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", live=False).path
    (run / PANEL).write_text(panel_row(0, 2.0) + panel_row(2, 5.0), "utf-8")
    text = report(run)
    lead = part(text, '<p class="lead">', "</p>")
    assert lead.endswith("payoff against the panel rose from 3.00 to 6.00; the best response to it earns 8.00.")
    tiles = re.findall(r'<section class="tile (\w+)"><h2 title="([^"]+)"', text)
    assert tiles[:2] == [("better", "panel.payoff"), ("better", "panel.gap")]
    drawing = part(text, ">Payoff against the panel</figcaption>", "</svg>")
    assert "best response 8" in drawing and "M" in drawing


def test_zero_sum_self_play_shows_a_seat_and_not_the_sum(tmp_path: Path) -> None:
    rounds = [
        [spoken(k, n, ["BET", "PASS"], payoffs={"opener": gain, "responder": -gain}) for n, gain in enumerate(gains)]
        for k, gains in enumerate([(2.0, 1.0, 2.0), (-1.0, -2.0, -1.0)])
    ]
    run = recorded(tmp_path / "run", rounds)
    rows = [{"iteration": k, "payoff": {"opener": p, "responder": -p}} for k, p in enumerate((5 / 3, -4 / 3))]
    (run / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    text = report(run, theory={"parley": {"value": -0.5}})
    lead = part(text, '<p class="lead">', "</p>")
    assert "payoff of opener fell from 1.67 to −1.33; between perfect players it is −0.50." in lead
    assert "payoff of the learners" not in text
    assert "value of the game −0.5" in part(text, ">Payoff by seat</figcaption>", "</svg>")


def test_better_and_worse_are_told_without_colour(page: str) -> None:
    words = re.findall(r'<span class="verdict (\w+)">([^<]+)', page)
    said = {"better": r"[▲▼] better", "worse": r"[▲▼] worse", "changed": "[▲▼]", "same": "≈ within noise"}
    assert words and all(re.fullmatch(said[kind], word) for kind, word in words)
    marks = re.findall(r'<li class="(\w+)"><span class="mark">([^<]*)', page)
    assert marks and all((kind[0], mark[:1]) in {("c", "+"), ("m", "−"), ("c", "±"), ("n", "")} for kind, mark in marks)


def test_the_page_is_small(page: str, tmp_path: Path) -> None:
    """Twenty iterations of a league come to less than 200 kB: pictures are paths, not pixels."""
    assert len(page.encode()) < 200_000
    rounds = [[spoken(k, n, [f"word{k} {n}", f"word{n} {k} fine"]) for n in range(24)] for k in range(20)]
    assert len(report(recorded(tmp_path / "run", rounds)).encode()) < 100_000


def palettes() -> list[dict[str, str]]:
    """The colours by name, of light and of dark."""
    blocks = re.findall(r":root \{(.*?)\n\s*\}", STYLE, re.S)
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(found) == 2 and found[0].keys() == found[1].keys()
    return found


def test_contrast_is_as_it_is_defined() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") < 4.5


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_texts_and_lines_have_the_contrast_of_wcag_aa(place: int) -> None:
    colours = palettes()[place]
    texts = {"ink": ["paper", "card", "worse-bg", *(f"{side}{k}" for side in "cm" for k in range(1, 6))]}
    texts |= {
        "soft": ["paper", "card"],
        "link": ["paper"],
        "better": ["paper", "card"],
        "worse": ["paper", "card", "worse-bg"],
    }
    texts |= {f"s{k}": ["paper"] for k in range(1, 7)}
    low = {
        (name, ground): round(contrast(colours[name], colours[ground]), 2)
        for name, grounds in texts.items()
        for ground in grounds
        if contrast(colours[name], colours[ground]) < 4.5
    }
    assert low == {}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("width", [320, 400, 1400])
def test_nothing_runs_out_of_the_window(browser: Any, page: str, tmp_path: Path, width: int) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    wide, window = widths(browser, file.as_uri(), width)
    assert wide <= window
    file.write_text(page.replace("</body>", f"<pre>{'x' * 4000}</pre></body>"), "utf-8")
    assert widths(browser, file.as_uri(), width)[0] > window, "else the test above could not fail"


def test_every_fold_and_table_is_reached_by_keyboard(browser: Any, page: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    view = browser.new_page()
    view.goto(file.as_uri())
    reached = set()
    for _ in range(60):
        view.keyboard.press("Tab")
        reached.add(view.evaluate("document.activeElement.tagName + document.activeElement.className"))
    view.close()
    assert {"Askip", "A", "SUMMARY", "DIVscroll"} <= reached
