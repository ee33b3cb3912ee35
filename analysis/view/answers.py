"""Answers of the page's server: JSON, and complaints of one line."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from analysis.view.plain import written
from arena.plain import printable


class Json(Response):
    """A value as JSON in pure ASCII."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Write the value."""
        return written(content).encode("ascii")


def complaint(line: str, status: int = 400) -> Json:
    """A complaint of one line as an answer."""
    return Json({"error": printable(line)[:1000]}, status)
