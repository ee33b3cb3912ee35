"""A real browser for tests that open a page; they are skipped, and say how to get one, where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def open_chromium() -> Iterator[Any]:
    """Chromium by playwright: the system's own, or else the one that playwright fetched."""
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with api.sync_playwright() as started:
        if not found and not Path(started.chromium.executable_path).exists():
            pytest.skip("no browser: playwright install chromium, or apt install chromium")
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def measure_widths(browser: Any, address: str, width: int, scheme: str = "light") -> tuple[int, int]:
    """How wide a page is in a window of this width, and how wide the window; every part of it unfolded."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    view = context.new_page()
    view.goto(address)
    view.wait_for_timeout(500)  # it is drawn after it is loaded
    view.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = view.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    context.close()
    return int(found[0]), int(found[1])
