"""HTTP connection to an MCP server on this machine, as a transport for the client library.

The library limits the length of events but not of JSON answers. Here such answers have a maximum length and must not be
compressed. Proxy settings of the environment are ignored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from simulators.toolbox.stdio import MAX_MESSAGE_BYTES

ANSWER_SECONDS = 300.0
"""Timeout for the next bytes of an answer; calls have their own, shorter ones."""


@asynccontextmanager
async def http_server(url: str) -> AsyncIterator[tuple[Any, Any]]:
    """Connect to a server and yield the streams of its messages: (from the server, to the server)."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class BoundedStream(httpx2.AsyncByteStream):
        """Body of an answer; fails beyond the maximum length."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self.stream:
                size += len(piece)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.ReadError("the answer is too long")
                yield piece

        async def aclose(self) -> None:
            await self.stream.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.ReadError("the answer is compressed")
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                response.stream = BoundedStream(response.stream)
            return response

    headers, timeout = {"Accept-Encoding": "identity"}, httpx2.Timeout(30.0, read=ANSWER_SECONDS)
    async with (
        httpx2.AsyncClient(transport=Transport(), headers=headers, timeout=timeout, trust_env=False) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams
