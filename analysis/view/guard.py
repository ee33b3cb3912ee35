"""Access control, security headers and JSON responses of the viewer's server.

The page is for this machine only. Requests must name this server as host, which stops DNS rebinding. Requests for data
must carry the link's token, which follows `#`, so that browsers do not send it to servers. There is no cookie that
another page could use. Changes require a POST of JSON from the page itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from analysis.view.json_values import to_json
from arena.plain import printable

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
MAX_BODY_BYTES = 10**6
"""Maximum size of a request body in bytes."""
DATA = "/api/"


class Guard:
    """ASGI middleware that rejects requests from elsewhere or without token, and adds security headers to responses."""

    def __init__(self, app: Any, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a rejected request with an error, or pass it on. Responses get the security `HEADERS`."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # no websockets

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        status, reason = self._find_refusal(scope["method"], scope["path"], Headers(scope=scope))
        answer = error_response(reason, status) if reason else self.app
        await answer(scope, receive, send_with_headers)

    def _find_refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str]:
        """Return the HTTP status and the reason for rejecting a request, or (200, "") to accept it."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 403, "this server answers under its own address only: open the link that arena view printed"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and path.startswith(DATA):
            return 403, "only the page itself may request data"
        if path.startswith(DATA) and not self._is_authorized(headers.get("authorization", "")):
            return 401, "the link's token is missing or outdated: open the link that arena view printed"
        if method in ("GET", "HEAD"):
            return 200, ""
        if method != "POST":
            return 405, "use GET or POST"
        if headers.get("origin") != f"http://{host}":
            return 403, "only the page itself may make changes"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "the request body must be JSON"
        size = headers.get("content-length", "")
        if not size.isdecimal() or len(size) > 9 or int(size) > MAX_BODY_BYTES:
            return 413, f"the request needs a content-length of at most {MAX_BODY_BYTES} bytes"
        return 200, ""

    def _is_authorized(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        return scheme == "Bearer" and secrets.compare_digest(token.encode(), self.token.encode())


class Json(Response):
    """HTTP response that encodes its content as JSON in ASCII."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content as JSON bytes, with null for NaN and infinity."""
        return to_json(content).encode("ascii")


def error_response(line: str, status: int = 400) -> Json:
    """Return an HTTP response with the JSON object {"error": line}, with at most 1,000 printable characters."""
    return Json({"error": printable(line)[:1000]}, status)
