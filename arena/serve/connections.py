"""Connections of an HTTP server of ours: how many there may be, and for how long one may keep others waiting."""

import asyncio
from typing import Any, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 512
"""Largest number of connections at a time: of those that have sent no whole request, the oldest makes room."""
HEAD_SECONDS = 20.0
"""Time in which a connection has to bring the head of a request."""
BODY_SECONDS = 60.0
"""Time in which the body has to follow it."""
READ_SECONDS = 60.0
"""Time in which a client has to read on, where it reads more slowly than it is answered."""
BACKLOG = 128
"""Connections that the system holds for us, and that are taken at once: each needs a file descriptor."""

Phase = Literal["head", "body", "answer", "idle"]
"""What a connection waits for: a request's head or body, our answer, or the next request."""


class Connection(H11Protocol):
    """HTTP/1.1 in which no client can keep others out by requests that it does not finish; uvicorn waits for ever."""

    _phase: Phase = "idle"
    _since = 0.0
    """When the phase began, by the loop's clock."""
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    """Deadline of a client that does not read its answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; where there is no room left, close the connection that has waited longest for its own."""
        super().connection_made(transport)
        self._enter("head", HEAD_SECONDS)
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        if len(others) + 1 >= (self.limit_concurrency or CONNECTIONS):
            waiting = [one for one in others if one._phase != "answer"]
            if waiting:
                min(waiting, key=lambda one: one._since)._abort()

    def data_received(self, data: bytes) -> None:
        """Read on, and note what is still missing."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._enter("head", HEAD_SECONDS)
        elif self.cycle.more_body:
            self._enter("body", BODY_SECONDS)
        else:
            self._enter("answer")

    def on_response_complete(self) -> None:
        """Wait for the next request, as long as uvicorn keeps the connection; a part of it may be there already."""
        self._enter("idle")
        super().on_response_complete()
        if not self.cycle.response_complete:
            self._enter("body" if self.cycle.more_body else "answer", BODY_SECONDS)

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(READ_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        self._cancel_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._enter("idle")
        self._cancel_unread()
        super().connection_lost(exc)

    def _enter(self, phase: Phase, seconds: float = 0.0) -> None:
        """Begin a phase, unless it has begun: a byte now and then gains no time."""
        if phase == self._phase:
            return
        self._phase, self._since = phase, self.loop.time()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase in ("head", "body"):
            self._deadline = self.loop.call_later(seconds, self._abort if phase == "head" else self._refuse_body)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _refuse_body(self) -> None:
        """Answer that the body took too long, where nothing else is answered yet."""
        if self.cycle.response_started or self.transport.is_closing():
            self._abort()
            return
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        told = f"the body was not there within {BODY_SECONDS:g} s".encode()
        answer = h11.Response(status_code=408, headers=headers, reason=b"Request Timeout")
        for event in (answer, h11.Data(data=told), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _abort(self) -> None:
        """Close at once, whatever the client has not read."""
        self.connections.discard(self)
        self.transport.abort()


def server(app: Any, connections: int = CONNECTIONS, **settings: Any) -> uvicorn.Server:
    """Return the server of an application, with all bounds; `settings` are further ones of uvicorn."""
    config = uvicorn.Config(
        app, http=Connection, ws="none", limit_concurrency=connections, backlog=BACKLOG, access_log=False, **settings
    )
    return uvicorn.Server(config)
