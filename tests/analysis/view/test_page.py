"""The page in a real browser: list, filters, match, estimators, tokens, replay, live run, hostile texts, widths."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from tests.factories.browser import open_chromium
from tests.factories.commands import arena
from tests.factories.hostile_run import TEXTS, make_hostile_run
from tests.factories.made_run import make_match, make_run
from tests.factories.page import Page
from tests.factories.view import serve_page

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("negotiation", "bargain"):
        shutil.copytree(EXAMPLE / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def link(runs: Path) -> Iterator[str]:
    with serve_page(runs) as address:
        yield address


@pytest.fixture
def page(browser: Any, link: str) -> Iterator[Page]:
    window = Page(browser, link)
    yield window
    window.close()


def test_the_token_leaves_the_address_and_stays_in_the_window(page: Page) -> None:
    assert "token" not in page.view.url
    page.view.reload()
    page.wait_until("document.querySelectorAll('.card').length === 2")


@pytest.mark.slow
def test_a_reader_finds_the_largest_loss_and_why_by_five_clicks(page: Page) -> None:
    """Run, matches, sort order, first match, and the turn with its advantage."""
    page.click("text=negotiation")
    page.view.wait_for_selector(".chart canvas")
    page.click("nav.tabs >> text=Matches")
    page.wait_until("document.querySelectorAll('table.matches tbody tr').length > 5")
    page.choose("#sort", "low")
    worst = analysis.sql(EXAMPLE / "negotiation", "select min(advantage) as low from turns")["low"].iloc[0]
    page.wait_until(f"document.querySelector('td.loss')?.textContent === '{worst:.2f}'.replace('-', '\\u2212')")
    page.click("table.matches tbody tr a")
    page.view.wait_for_selector("article.turn.m5")
    assert page.clicks == 5
    assert "NOT VALID" in page.text("article.turn.m5").upper() and "The deal" in page.text(".deal")
    seats = page.view.eval_on_selector_all("h2.lane", "all => all.map(e => e.textContent)")
    assert seats == ["opener", "responder"]


@pytest.mark.slow
def test_filters_narrow_the_list_and_stand_in_the_address(page: Page) -> None:
    page.open_route("#/run/negotiation/matches", "table.matches tbody tr")
    page.view.fill("#where", 'turns > 5 and not "report.deal"')
    page.view.press("#where", "Enter")
    expected = analysis.sql(
        EXAMPLE / "negotiation", 'select count(*) as n from matches where turns > 5 and not "report.deal"'
    )
    page.wait_until(f"document.getElementById('total')?.textContent.startsWith('{expected['n'].iloc[0]} of 768')")
    assert "where=" in page.view.url
    page.view.fill("#where", "nonsense !")
    page.view.press("#where", "Enter")
    page.view.wait_for_selector(".complaint")
    page.open_route("#/run/negotiation/matches?text=walk", ".hits li")
    page.view.click(".hits li a")
    page.view.wait_for_selector("article.turn.at")
    assert "WALK" in page.text("article.turn.at")
    page.errors = [line for line in page.errors if "400" not in line]  # the browser notes the refused condition


def test_columns_of_the_list_are_chosen_and_stand_in_the_address(page: Page) -> None:
    page.open_route("#/run/negotiation/matches", "table.matches tbody tr")
    heads = "[...document.querySelectorAll('table.matches thead th')].map(h => h.textContent)"
    assert page.view.evaluate(heads)[1:] == ["Seats and payoffs", "Outcome", "Turns", "Least advantage", "Greatest"]
    page.view.click("details.columns summary")
    page.view.click("input[value='report.efficiency']")
    page.view.click("input[value=low]")
    page.wait_until("location.hash.includes('columns=')")
    page.wait_until(f"{heads}.includes('efficiency')")
    page.view.reload()
    page.view.wait_for_selector("table.matches tbody tr")
    assert page.view.evaluate(heads)[1:] == ["Seats and payoffs", "Outcome", "Turns", "Greatest", "efficiency"]
    query = 'select match, "report.efficiency" as e from matches order by iteration desc, match limit 50'
    expected = analysis.sql(EXAMPLE / "negotiation", query).set_index("match")["e"]
    rows = "[...document.querySelectorAll('tbody tr')].map(r => [r.children[0].textContent, r.children[5].textContent])"
    for id, text in page.view.evaluate(rows):
        known = expected[id] == expected[id]
        assert float(text) == pytest.approx(expected[id], abs=6e-3) if known else text == "–"
    page.view.click("details.columns summary")
    page.view.click("text=as at first")
    page.wait_until("!location.hash.includes('columns=')")
    page.open_route("#/run/negotiation/matches?columns=constructor,__proto__,seats", "table.matches tbody tr")
    page.wait_until(f"{heads}.length === 2")


def test_a_match_is_copied_as_text_as_json_and_as_a_link(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.open_route("#/run/negotiation/match/0012-0007?turn=1", "article.turn.at")
    clip = "navigator.clipboard.readText()"
    page.view.keyboard.press("y")
    page.wait_until("document.querySelector('.copy [role=status]').textContent === 'copied as text'")
    lines = page.view.evaluate(clip).splitlines()
    assert lines[0] == "negotiation 0012-0007: negotiation, iteration 12, finished" and "Dealt" in lines
    turns = analysis.sql(EXAMPLE / "negotiation", "select seat from turns where match = '0012-0007' order by turn")
    numbered = [line for line in lines if line[:1].isdigit()]
    assert [line.split()[1] for line in numbered] == turns["seat"].tolist() and "advantage" in lines[-1]
    page.view.click("#copy-JSON")
    page.wait_until("document.querySelector('.copy [role=status]').textContent === 'copied as JSON'")
    copied = json.loads(page.view.evaluate(clip))
    assert copied["id"] == "0012-0007" and len(copied["turns"]) == len(turns)
    page.view.click("#copy-link")
    page.wait_until("document.querySelector('.copy [role=status]').textContent === 'copied as link'")
    assert page.view.evaluate(clip) == page.view.url and "token" not in page.view.url


@pytest.mark.slow
def test_every_estimators_values_are_those_of_arena_credit(page: Page) -> None:
    printed = json.loads(arena("credit", EXAMPLE / "negotiation", "--estimators", "rae,grpo", "--json").out)["turns"]
    page.open_route("#/run/negotiation/match/0012-0007", "article.turn")
    for name in ("rae", "grpo"):
        page.view.select_option("#estimator", name)
        page.view.wait_for_selector(f".lanes[data-estimator='{name}']")
        texts = page.view.eval_on_selector_all("article.turn .advantage b", "all => all.map(e => e.textContent)")
        expected = [row[name] for row in printed if row["match"] == "0012-0007"]
        values = [float(text.replace("\N{MINUS SIGN}", "-")) for text in texts]
        assert len(expected) == 6 and values == pytest.approx(expected, abs=6e-3)


def test_tokens_are_shown_in_the_colours_of_a_figure(page: Page) -> None:
    page.open_route("#/run/negotiation/match/0012-0003", "article.turn")
    page.view.select_option("#overlay", "logprob")
    page.view.wait_for_selector(".tokens .token")
    assert page.view.eval_on_selector_all("article.turn .tokens .token", "all => all.length") > 10
    assert "p 0." in page.view.get_attribute(".tokens .token", "title") or "p 1" in page.view.get_attribute(
        ".tokens .token", "title"
    )
    assert page.view.is_disabled("#overlay option[value=entropy]")
    page.view.select_option("#overlay", "mask")
    page.view.wait_for_selector(".tokens .context .token.read")


def test_a_match_is_played_again_turn_by_turn(page: Page) -> None:
    page.open_route("#/run/negotiation/match/0012-0007", "article.turn")
    count = "document.querySelectorAll('article.turn').length"
    page.wait_until(f"{count} === 6")
    page.view.keyboard.press("ArrowLeft")
    page.wait_until(f"{count} === 5")
    page.view.click("#play")
    page.wait_until(f"{count} < 3 || {count} === 6")
    page.wait_until(f"{count} === 6 && document.getElementById('play').textContent.includes('replay')")


@pytest.mark.slow
def test_the_keyboard_does_everything(page: Page) -> None:
    press = page.view.keyboard.press
    page.wait_until("document.querySelectorAll('.card').length === 2")
    press("j")
    page.wait_until("document.querySelectorAll('.card')[1].classList.contains('at')")
    press("Enter")
    page.view.wait_for_selector("nav.tabs")
    press("2")
    page.wait_until("document.querySelectorAll('table.matches tbody tr').length > 5")
    press("j")
    press("j")
    press("Enter")
    page.view.wait_for_selector("article.turn")
    assert page.text("h1") == "0012-0001"
    press("]")
    page.wait_until("document.querySelector('h1').textContent === '0012-0002'")
    press("t")
    page.wait_until("document.documentElement.dataset.theme === 'dark'")
    press("?")
    page.view.wait_for_selector("[role=dialog]")
    press("Escape")
    page.wait_until("!document.querySelector('[role=dialog]')")
    press("Escape")
    page.view.wait_for_selector("table.matches")
    press("3")
    page.view.wait_for_selector("svg.graph .node")


def test_a_note_is_written_on_a_turn_and_found(page: Page, runs: Path) -> None:
    page.open_route("#/run/negotiation/match/0012-0003?turn=1", "article.turn.at")
    page.view.focus("article.turn.at")
    page.view.keyboard.press("n")
    page.view.wait_for_selector(".note-form textarea")
    page.view.keyboard.type("too <b>greedy</b>")
    page.view.click(".note-form .strong")
    page.view.wait_for_selector("article.turn .note")
    assert json.loads((runs / "negotiation" / "notes.jsonl").read_text())["turn"] == 1
    page.open_route("#/run/negotiation/notes", ".note")
    assert "too <b>greedy</b>" in page.text(".note")


@pytest.mark.slow
def test_fork_shows_the_alternative_by_three_clicks(page: Page) -> None:
    page.open_route("#/run/bargain/match/0001-0000", "article.turn.at")
    page.click("#turn-1")
    page.click("#turn-1 .acts >> text=fork from here")
    page.view.keyboard.type("WALK")  # where the form has the keyboard already
    page.click(".fork .strong")
    assert page.clicks == 3
    page.view.wait_for_selector("table.forked", timeout=60_000)
    assert "payoff opener" in page.text("table.forked")


def test_two_runs_and_two_matches_stand_side_by_side(page: Page) -> None:
    page.open_route("#/pair/negotiation/0012-0003/bargain/0001-0000", ".two article.turn")
    page.wait_until("document.querySelectorAll('.two > section:last-child article').length > 3")
    page.open_route("#/compare/negotiation/bargain", "h1")


@pytest.mark.slow
def test_a_live_run_grows_without_a_reload(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", iterations=2)
    with serve_page(tmp_path) as link:
        page = Page(browser, link)
        page.view.evaluate("window.same = 1")
        page.open_route("#/run/run/matches", "table.matches tbody tr")
        page.wait_until("document.getElementById('total').textContent.startsWith('8 of 8')")
        run.log.extend([make_match(1, 7)])
        page.wait_until("document.getElementById('total').textContent.startsWith('9 of 9')")
        page.open_route("#/run/run", ".empty")
        run.metrics.append({"iteration": 1, "valid_rate": 0.75})
        page.view.wait_for_selector(".chart canvas")
        run.metrics.append({"iteration": 2, "valid_rate": 0.25})
        page.wait_until("document.querySelector('.legend b').textContent.startsWith('25')")
        assert page.view.evaluate("window.same") == 1
        page.close()


def test_hostile_texts_are_escaped(browser: Any, tmp_path: Path) -> None:
    """No script runs, no request leaves, and no layout breaks, for any field."""
    make_hostile_run(tmp_path / "run <script>window.pwned=1<")
    with serve_page(tmp_path) as link:
        page, name = Page(browser, link, 1000), "run%20%3Cscript%3Ewindow.pwned%3D1%3C"
        routes = {f"#/run/{name}": ".chart canvas", f"#/run/{name}/matches": "table.matches tbody tr"}
        routes |= {f"#/run/{name}/league": "svg.graph .node", f"#/run/{name}/settings": "table.settings"}
        routes |= {f"#/run/{name}/figures": ".lead"}
        routes |= {f"#/run/{name}/matches?text=%3Cscript&of=seen": ".hits li"}
        routes |= {f"#/run/{name}/match/0001-{k:04d}": "h1" for k in range(len(TEXTS))}
        for route, selector in routes.items():
            page.open_route(route, selector)
            if selector == "h1":
                page.wait_until(f"{route[-9:]!r} === document.querySelector('h1').textContent")
                page.wait_until("document.querySelectorAll('article.turn').length === 3")
            wide, window = page.view.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            assert wide <= window, route
            assert (
                page.view.evaluate(
                    "document.querySelectorAll('iframe, base, meta[http-equiv], #app script, #app style').length"
                )
                == 0
            )
            assert page.view.evaluate("window.pwned") is None, route
            assert page.view.is_visible("header.bar"), route
        page_text = page.view.evaluate("document.body.innerText")
        assert "\u202e" not in page_text and "\x1b" not in page_text
        page.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_runs_out_of_the_window(browser: Any, link: str, width: int, scheme: str) -> None:
    page = Page(browser, link, width, scheme)
    routes = {
        "#/": ".card",
        "#/run/negotiation": ".chart canvas",
        "#/run/negotiation/matches": "table.matches tbody tr",
    }
    routes |= {"#/run/negotiation/match/0012-0007": "article.turn", "#/run/negotiation/league": "svg.graph .node"}
    routes |= {"#/run/negotiation/figures": ".tile", "#/run/negotiation/matches?columns=seats,source,seconds": ".more"}
    for route, selector in routes.items():
        page.open_route(route, selector)
        wide, window = page.view.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= window, route
    page.close()


@pytest.mark.slow
def test_a_person_plays_in_the_page(page: Page) -> None:
    page.open_route("#/play?game=kuhn_poker", "#begin")
    page.view.click("#begin")
    for _ in range(5):
        page.wait_until("document.querySelector('.legal button') || document.querySelector('#end')")
        if page.view.query_selector("#end"):
            break
        before = page.text("body")
        page.view.click(".legal button")
        page.wait_until(f"document.body.innerText !== {json.dumps(before)}")
    assert "How it ended" in page.text("#end")
