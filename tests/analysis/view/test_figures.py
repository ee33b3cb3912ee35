"""The overview of a run: one sentence, three tiles, six rows, plain names; small and legible at any width."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
from analysis.report import report
from analysis.view import learned
from analysis.view.charts import pareto_front
from analysis.view.metric_names import NAMES, THEORY, name_figure
from arena.cli.page_data import deal_facts, list_theory_values
from arena.store.contents import METRICS, PANEL
from games import GAMES
from tests.factories.browser import measure_widths, open_chromium
from tests.factories.commands import arena
from tests.factories.contrast import compute_contrast
from tests.factories.made_run import make_run
from tests.factories.report import read_answers
from tests.factories.spoken_run import make_dialogue, write_run

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example" / "negotiation"
STYLE = (Path(analysis.__file__).parent / "view" / "static" / "view.css").read_text("utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a real run, as the command writes it."""
    out = tmp_path_factory.mktemp("page") / "page.html"
    arena("report", str(EXAMPLE), "--out", str(out))
    return out.read_text("utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as opened:
        yield opened


def test_a_sentence_and_three_tiles_stand_on_top(page: str) -> None:
    summary = read_answers(page)["summary"]
    lead = "Over 12 iterations and 768 matches of negotiation, deals rose from 20\u00a0% to 75\u00a0%."
    assert summary["sentence"] == lead and f"<noscript><p>{lead}</p>" in page
    tiles = [(row["verdict"], row["key"]) for row in summary["rows"][: summary["tiles"]]]
    assert tiles == [("better", "deal"), ("better", "learners payoff"), ("better", "efficiency")]


def test_names_are_plain_words_with_the_key_beside_them(page: str) -> None:
    rows = {row["key"]: row["name"] for row in read_answers(page)["summary"]["learning"]}
    assert rows["learn.shared.kl"] == "distance from the reference (KL), shared"
    assert [name for name in rows.values() if re.match(r"(?:learn|report|selection|win_rate|ratings)\.\w+", name)] == []


def test_the_page_shows_what_the_viewer_shows(page: str, browser: Any, tmp_path: Path) -> None:
    """All parts in one column: tiles, rows, and folded curves, matches, league and settings."""
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    view = browser.new_page()
    view.goto(file.as_uri())
    view.wait_for_selector("svg.graph .node")
    view.wait_for_selector(".chart canvas")
    counted = {".tile": 3, "table.figures:not(details *) tbody tr": learned.ROWS, "table.matches tbody tr": 6}
    counted |= {"details table.figures": 2}
    counted |= {".chart canvas": len(read_answers(page)["curves"]["curves"]), "circle.ring": -1, "circle.disc": -1}
    for selector, count in counted.items():
        shown_count = len(view.query_selector_all(selector))
        assert shown_count == count or (count < 0 < shown_count), selector
    assert view.query_selector_all(".filters, #estimator, #control, .flight, nav.tabs") == []
    heads = view.eval_on_selector_all(".parts > h2", "all => all.map(h => h.textContent)")
    assert heads[:2] == ["Curves", "Matches to read"] and heads[-2:] == ["League", "Settings"]
    signs = view.eval_on_selector_all(".verdict", "all => all.map(v => [v.className.split(' ')[1], v.textContent])")
    patterns = {"better": r"[▲▼] better", "worse": r"[▲▼] worse", "changed": "[▲▼]", "same": "≈ within noise"}
    assert signs and all(re.fullmatch(patterns[kind], word) for kind, word in signs)
    view.keyboard.press("j")
    view.keyboard.press("Enter")
    view.wait_for_selector("h1 >> text=0001-0000")
    assert view.inner_text(".deal").count("values") == 2 and re.search(r"books \d, hats \d", view.inner_text(".deal"))
    view.keyboard.press("Escape")
    view.wait_for_selector(".tile")
    view.close()


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
    assert [name_figure(key).better for key in ("report.deal", "failed_rate", "report.turns")] == ["more", "less", ""]
    assert name_figure("kuhn_poker.valid_rate") == ("kuhn_poker: valid acts of all turns", "more")


def test_theorys_names_are_those_that_games_state() -> None:
    assert {*THEORY} <= {name for game in GAMES.values() for name in game.theory}


def test_every_role_is_drawn(page: str) -> None:
    curves = {curve["title"]: curve for curve in read_answers(page)["curves"]["curves"]}
    for title, lines in (
        ("Payoff by seat", ["opener", "responder"]),
        ("Reward by role", ["nano opener", "nano responder"]),
    ):
        assert [line["label"] for line in curves[title]["series"]] == lines
    assert [level["label"] for level in curves["Payoff by seat"]["levels"]] == ["Nash bargain, mean"]


def test_shown_deal_matches_the_game() -> None:
    facts = deal_facts("kuhn_poker", '{"talk": false}', 7, [("first", "PASS"), ("second", "PASS")])
    game = GAMES["kuhn_poker"](talk=False)
    game.reset(seed=7)
    assert {seat: facts[seat]["card"] for seat in game.seats} == {s: game.private(s)["card"] for s in game.seats}
    assert list_theory_values("kuhn_poker") == {"value": -1 / 18}


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
    """Game files of the run itself are never executed for it."""
    assert deal_facts(game, options, 1, []) == {} or game == "maze"
    assert list_theory_values("mine.py:Game") == {}


def make_panel_row(iteration: int, payoff: float) -> str:
    cell = {"member": "naive", "seat": "opener", "payoff": [payoff, payoff + 1, payoff + 2], "valid": [1.0, 1.0, 0.5]}
    cell |= {"best_response": [8.0, 8.0, 8.0], "deal": [1.0, 1.0, 0.0]}
    row = {
        "iteration": iteration, "contender": "shared", "panel": "p", "key": "k", "game": "negotiation", "options": {},
    }  # fmt: skip
    return json.dumps(row | {"seed": 0, "deals": 3, "cells": [cell]}) + "\n"


def test_a_panel_comes_first_and_beside_what_the_best_response_earns(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", live=False).path
    (run / PANEL).write_text(make_panel_row(0, 2.0) + make_panel_row(2, 5.0), "utf-8")
    answers = read_answers(report(run))
    lead = answers["summary"]["sentence"]
    assert lead.endswith("payoff against the panel rose from 3.00 to 6.00; the best response to it earns 8.00.")
    tiles = [(row["verdict"], row["key"]) for row in answers["summary"]["rows"]]
    assert tiles[:2] == [("better", "panel.payoff"), ("better", "panel.gap")]
    first = answers["curves"]["curves"][0]
    assert first["title"] == "Payoff against the panel" and [p[:2] for p in first["series"][0]["points"]] == [
        [0, 3],
        [2, 6],
    ]
    assert first["levels"] == [{"label": "best response", "value": 8.0}]


def test_zero_sum_self_play_shows_a_seat_and_not_the_sum(tmp_path: Path) -> None:
    rounds = [
        [
            make_dialogue(k, n, ["BET", "PASS"], payoffs={"opener": gain, "responder": -gain})
            for n, gain in enumerate(gains)
        ]
        for k, gains in enumerate([(2.0, 1.0, 2.0), (-1.0, -2.0, -1.0)])
    ]
    run = write_run(tmp_path / "run", rounds)
    rows = [{"iteration": k, "payoff": {"opener": p, "responder": -p}} for k, p in enumerate((5 / 3, -4 / 3))]
    (run / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    answers = read_answers(report(run, theory={"parley": {"value": -0.5}}))
    lead = answers["summary"]["sentence"]
    assert "payoff of opener fell from 1.67 to −1.33; between perfect players it is −0.50." in lead
    assert "learners payoff" not in [row["key"] for row in answers["summary"]["rows"]]
    (curve,) = [curve for curve in answers["curves"]["curves"] if curve["title"] == "Payoff by seat"]
    assert curve["levels"] == [{"label": "value of the game", "value": -0.5}]


@pytest.mark.slow
def test_the_page_is_small(page: str, tmp_path: Path) -> None:
    """Its script has 230 kB, and its data on twenty iterations of a league less than 100."""
    assert len(page.encode()) < 400_000
    rounds = [[make_dialogue(k, n, [f"word{k} {n}", f"word{n} {k} fine"]) for n in range(24)] for k in range(20)]
    text = report(write_run(tmp_path / "run", rounds))
    assert len(json.dumps(read_answers(text))) < 100_000


def read_palettes() -> list[dict[str, str]]:
    """Return the named colours of the light and the dark theme."""
    blocks = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{(.*?)\n\s*\}", STYLE, re.S)
    palettes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(palettes) == 2 and palettes[0].keys() == palettes[1].keys()
    return palettes


def test_contrast_is_as_it_is_defined() -> None:
    assert compute_contrast("#000000", "#ffffff") == pytest.approx(21) and compute_contrast("#777777", "#ffffff") < 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_lines_have_the_contrast_of_wcag_aa(theme: int) -> None:
    colours = read_palettes()[theme]
    texts = {"ink": ["paper", "card", "worse-bg", *(f"{side}{k}" for side in "cm" for k in range(1, 6))]}
    texts |= {
        "soft": ["paper", "card"],
        "link": ["paper"],
        "better": ["paper", "card"],
        "worse": ["paper", "card", "worse-bg"],
    }
    texts |= {f"s{k}": ["paper"] for k in range(1, 7)}
    low = {
        (name, ground): round(compute_contrast(colours[name], colours[ground]), 2)
        for name, grounds in texts.items()
        for ground in grounds
        if compute_contrast(colours[name], colours[ground]) < 4.5
    }
    assert low == {}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("width", [320, 400, 1400])
def test_nothing_runs_out_of_the_window(browser: Any, page: str, tmp_path: Path, width: int) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    wide, window = measure_widths(browser, file.as_uri(), width)
    assert wide <= window
    file.write_text(page.replace("</body>", f"<pre>{'x' * 4000}</pre></body>"), "utf-8")
    assert measure_widths(browser, file.as_uri(), width)[0] > window, "else the test above could not fail"


@pytest.mark.slow
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
    assert {"Askip", "A", "SUMMARY", "DIVscroll", "BUTTONplain"} <= reached


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=30))
def test_no_result_is_beyond_the_pareto_front(reached: list[tuple[int, int]]) -> None:
    front = pareto_front(reached)

    def beaten(one: tuple[float, float]) -> bool:
        return any(x >= one[0] and y >= one[1] and (x, y) != one for x, y in reached)

    assert front == sorted({(float(x), float(y)) for x, y in reached if not beaten((x, y))})
