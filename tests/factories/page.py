"""A browser window on the page of `arena view`, which fails on closing if any error occurred."""

import time
from typing import Any

TIMEOUT = 60_000
"""Milliseconds: the machine may be busy."""


class Page:
    """Browser window on the page, which collects its errors."""

    def __init__(self, browser: Any, link: str, width: int = 1280, scheme: str = "light") -> None:
        self.base = link.partition("/#")[0]
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.view = self.context.new_page()
        self.view.set_default_timeout(TIMEOUT)
        self.errors: list[str] = []
        self.clicks = 0
        """Number of clicks a person would need."""
        self.view.on("pageerror", lambda error: self.errors.append(str(error)))
        self.view.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.view.on("dialog", lambda dialog: (self.errors.append("dialog"), dialog.dismiss()))
        self.view.on("request", self._on_request)
        self.view.goto(link)
        self.view.wait_for_selector("h1")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "blob:", "data:")):
            self.errors.append(request.url)

    def open_route(self, route: str, selector: str) -> Any:
        """Open a route and wait for the selector."""
        self.view.evaluate("route => { location.hash = route }", route)
        return self.view.wait_for_selector(selector)

    def click(self, selector: str) -> None:
        """Click, and count it."""
        self.view.click(selector)
        self.clicks += 1

    def choose(self, selector: str, value: str) -> None:
        """Choose from a list: one click opens it, another one chooses."""
        self.view.select_option(selector, value)
        self.clicks += 2

    def text(self, selector: str) -> str:
        return str(self.view.inner_text(selector))

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript condition holds; the page's security policy rules out playwright's own wait."""
        ends = time.monotonic() + TIMEOUT / 1000
        while not self.view.evaluate(condition):
            assert time.monotonic() < ends, f"{condition}: {self.view.inner_text('body')[:500]} {self.errors}"
            self.view.wait_for_timeout(50)

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
