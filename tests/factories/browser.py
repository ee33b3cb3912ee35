"""A real browser for tests that open a page. Without one, they are skipped with a hint to install it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def open_chromium() -> Iterator[Any]:
    """Open Chromium by playwright: the system's own, or else the one that playwright fetched."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with playwright.sync_playwright() as driver:
        if not executable and not Path(driver.chromium.executable_path).exists():
            pytest.skip("no browser: playwright install chromium, or apt install chromium")
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def measure_widths(browser: Any, address: str, width: int, scheme: str = "light") -> tuple[int, int]:
    """How wide a page is in a window of this width, and how wide the window; every part of it unfolded."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    view = context.new_page()
    view.goto(address)
    view.wait_for_timeout(500)  # it is drawn after it is loaded
    view.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    widths = view.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    context.close()
    return int(widths[0]), int(widths[1])
