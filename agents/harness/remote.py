"""Agent program behind a URL, to which each observation is posted, with the API's base URL and key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agents.errors import HarnessError
from agents.harness.program import OUTPUT_BYTES, parse_act
from agents.reply import to_one_line


class Remote:
    """Agent program that runs as an HTTP server. It answers an observation with its act, as JSON `{"act": "…"}`."""

    def __init__(self, url: str, access: Mapping[str, str]) -> None:
        """Prepare to post to the URL. `access` (base URL, key, model) is added to each observation."""
        self.url, self.access = url, dict(access)

    async def act(self, observation: Mapping[str, Any]) -> str:
        """Post an observation and return the act. Raises HarnessError if there is no usable answer.

        There is no timeout here: the caller limits the time of a turn.
        """
        import httpx2

        body = bytearray()
        try:
            async with (
                httpx2.AsyncClient(timeout=None, trust_env=False) as client,
                client.stream("POST", self.url, json={**observation, **self.access}) as response,
            ):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > OUTPUT_BYTES:
                        raise self._make_error(f"its answer is longer than {OUTPUT_BYTES:,} bytes")
                if response.status_code != 200:
                    raise self._make_error(f"status {response.status_code}")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._make_error(to_one_line(str(error), 200) or type(error).__name__) from None
        act = parse_act(bytes(body))
        if act is None:
            raise self._make_error('its answer is not JSON {"act": "…"}')
        return act

    def close(self) -> asyncio.Task[None] | None:
        """Do nothing: the request ends with the task that awaits it."""
        return None

    def _make_error(self, reason: str) -> HarnessError:
        return HarnessError(f"agent program {to_one_line(self.url, 80)}: {reason}")
