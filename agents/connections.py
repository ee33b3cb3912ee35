"""Limits of our HTTP servers: number of connections, timeouts for slow clients, and size of requests."""

import asyncio
from typing import Any, Literal

import h11
import uvicorn
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from agents.chat_messages import RequestError

CONNECTIONS = 512
"""Maximum number of connections. At the limit, the oldest one without a complete request is closed."""
HEAD_SECONDS = 20.0
"""Timeout for the head of a request."""
BODY_SECONDS = 60.0
"""Timeout for the body of a request."""
READ_SECONDS = 60.0
"""Timeout for a client that does not read its answer."""
BACKLOG = 128
"""Length of the listen queue. Queued connections are accepted at once, and each needs a file descriptor."""

Phase = Literal["head", "body", "answer", "idle"]
"""State of a connection: waiting for a request's head or body, for our answer, or idle."""


class Connection(H11Protocol):
    """HTTP/1.1 protocol with timeouts and a bounded number of connections, against slow clients."""

    _phase: Phase = "idle"
    _since = 0.0
    """Start of the phase by the loop's clock."""
    _deadline: asyncio.TimerHandle | None = None
    _read_timeout: asyncio.TimerHandle | None = None
    """Timer for a client that does not read its answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request. At the limit, close the connection that has waited longest for a complete request."""
        super().connection_made(transport)
        self._enter("head", HEAD_SECONDS)
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        if len(others) + 1 >= (self.limit_concurrency or CONNECTIONS):
            waiting = [other for other in others if other._phase != "answer"]
            if waiting:
                min(waiting, key=lambda other: other._since)._abort()

    def data_received(self, data: bytes) -> None:
        """Parse new data, and start the timeout for the missing part of the request: its head or its body."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._enter("head", HEAD_SECONDS)
        elif self.cycle.more_body:
            self._enter("body", BODY_SECONDS)
        else:
            self._enter("answer")

    def on_response_complete(self) -> None:
        """Start waiting for the next request, part of which may have arrived already."""
        self._enter("idle")
        super().on_response_complete()
        if not self.cycle.response_complete:
            self._enter("body" if self.cycle.more_body else "answer", BODY_SECONDS)

    def pause_writing(self) -> None:
        """Start the timeout after which a client that does not read its answer is disconnected."""
        super().pause_writing()
        self._read_timeout = self._read_timeout or self.loop.call_later(READ_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Resume writing, because the client reads again, and cancel the timeout that `pause_writing` started."""
        super().resume_writing()
        self._cancel_read_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timeouts of the closed connection."""
        self._enter("idle")
        self._cancel_read_timeout()
        super().connection_lost(exc)

    def _enter(self, phase: Phase, seconds: float = 0.0) -> None:
        """Enter a phase; for "head" and "body", start its timeout in seconds.

        Does nothing in the same phase, so that a client gains no time by sending slowly.
        """
        if phase == self._phase:
            return
        self._phase, self._since = phase, self.loop.time()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase in ("head", "body"):
            self._deadline = self.loop.call_later(seconds, self._abort if phase == "head" else self._refuse_body)

    def _cancel_read_timeout(self) -> None:
        if self._read_timeout is not None:
            self._read_timeout.cancel()
            self._read_timeout = None

    def _refuse_body(self) -> None:
        """Answer 408 to a request whose body took too long, and close. If an answer has started, only close."""
        if self.cycle.response_started or self.transport.is_closing():
            self._abort()
            return
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        text = f"the body did not arrive within {BODY_SECONDS:g} s".encode()
        answer = h11.Response(status_code=408, headers=headers, reason=b"Request Timeout")
        for event in (answer, h11.Data(data=text), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _abort(self) -> None:
        """Close the connection at once, without sending the rest of an answer."""
        self.connections.discard(self)
        self.transport.abort()


def make_server(app: Any, connections: int = CONNECTIONS, **settings: Any) -> uvicorn.Server:
    """Return a uvicorn server of an application, with the timeouts above and at most `connections` connections.

    `settings` are passed to uvicorn.
    """
    config = uvicorn.Config(
        app, http=Connection, ws="none", limit_concurrency=connections, backlog=BACKLOG, access_log=False, **settings
    )
    return uvicorn.Server(config)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read a request's body. Raises RequestError if it is larger than `max_bytes`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise RequestError(f"the body is larger than {max_bytes >> 20} MB", 413)
    return bytes(body)
