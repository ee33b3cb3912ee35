"""Accessibility of every part of the page, light and dark: axe finds nothing serious."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from arena.store.feed import FeedWriter
from tests.factories.browser import open_chromium
from tests.factories.feed import make_lines
from tests.factories.made_run import make_run
from tests.factories.page import Page
from tests.factories.view import serve_page

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example"
RUN = "#/run/negotiation"
PARTS = {
    "#/": ".card", RUN: ".chart canvas", f"{RUN}/matches": "table.matches tbody tr",
    f"{RUN}/matches?text=walk": ".hits li", f"{RUN}/matches?where=nonsense": ".complaint",
    f"{RUN}/league": "svg.graph .node", f"{RUN}/figures": ".tile", f"{RUN}/sql": "textarea", f"{RUN}/notes": "h1",
    f"{RUN}/settings": "table.settings",
    f"{RUN}/match/0012-0007": "article.turn", "#/pair/negotiation/0012-0003/bargain/0001-0000": ".two article.turn",
    "#/compare/negotiation/bargain": "main h1", "#/play": "#begin", "#/run/live": ".flight li",
}  # fmt: skip
ACTS = {
    "overlay": lambda view: (view.select_option("#overlay", "logprob"), view.wait_for_selector(".tokens .token")),
    "estimator": lambda view: (
        view.select_option("#estimator", "grpo"),
        view.wait_for_selector("[data-estimator=grpo]"),
    ),
    "note": lambda view: (
        view.focus("article.turn.at"),
        view.keyboard.press("n"),
        view.wait_for_selector(".note-form textarea"),
    ),
    "fork": lambda view: (view.keyboard.press("Escape"), view.keyboard.press("f"), view.wait_for_selector(".fork")),
    "keys": lambda view: (view.focus("h1 >> xpath=.."), view.keyboard.press("Escape"), view.keyboard.press("?")),
}
"""Actions that open each view of a match, in order."""


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("negotiation", "bargain"):
        shutil.copytree(EXAMPLE / name, folder / name)
    run = make_run(folder / "live", iterations=2)
    with run.lock(), serve_page(folder) as address:
        FeedWriter(run.path).write(make_lines("0001-0009", 2))
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(link: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()
    violations: dict[str, str] = {}

    def look(part: str, view: Any) -> None:
        for one in axe.run(view, options={"resultTypes": ["violations"]}).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                at = "; ".join(
                    f"{node['target']} {node['html'][:120]} {node['failureSummary'][-200:]}"
                    for node in one["nodes"][:3]
                )
                violations[f"{part} {one['id']}"] = at

    with open_chromium() as browser:
        page = Page(browser, link, scheme=scheme)
        for route, selector in PARTS.items():
            page.open_route(route, selector)
            page.view.wait_for_timeout(100)
            look(route, page.view)
        page.open_route(f"{RUN}/match/0012-0007?turn=2", "article.turn.at")
        for name, act in ACTS.items():
            act(page.view)
            look(name, page.view)
        page.errors = [line for line in page.errors if "400" not in line]  # the browser notes the refused condition
        page.close()
    assert violations == {}
