"""Access to the page's server: checks before every request, and headers on every answer that bind the page.

The page is of this machine alone. A request names this server as its host (a foreign name that resolves to this
machine, DNS rebinding, does not), and one for data carries the token, which only the page has: it stands in the link
behind `#`, which browsers send to nobody. No cookie is set, so that no other page can use one. What changes something
is a POST of JSON that comes from the page itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders

from analysis.view.answers import complaint

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LARGEST = 10**6
"""Bytes of what is posted."""
DATA = "/api/"


class Guard:
    """An ASGI application in front of the page's."""

    def __init__(self, app: Any, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse, or let pass."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # no websocket is spoken here

        async def headed(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        status, why = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        answer = complaint(why, status) if why else self.app
        await answer(scope, receive, headed)

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str]:
        """Return the status and one line, "" where nothing is wrong."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 403, "this server answers under its own address only: open the link that arena view printed"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and path.startswith(DATA):
            return 403, "only the page itself may ask"
        if path.startswith(DATA) and not self._known(headers.get("authorization", "")):
            return 401, "the link's token is missing or of another start: open the link that arena view printed"
        if method in ("GET", "HEAD"):
            return 200, ""
        if method != "POST":
            return 405, "GET or POST"
        if headers.get("origin") != f"http://{host}":
            return 403, "only the page itself may change something"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "JSON is expected"
        size = headers.get("content-length", "")
        if not size.isdecimal() or len(size) > 9 or int(size) > LARGEST:
            return 413, f"at most {LARGEST} bytes, and their number beforehand"
        return 200, ""

    def _known(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        return scheme == "Bearer" and secrets.compare_digest(given.encode(), self.token.encode())
