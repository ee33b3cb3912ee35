"""Connections of the endpoint: how many there may be, and for how long one may send a request."""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 512
"""Largest number of connections at a time; more are answered with status 503."""
HEAD_SECONDS = 20.0
"""Time in which a connection has to bring the head of a request."""
BODY_SECONDS = 60.0
"""Time in which the body has to follow it."""


class Connection(H11Protocol):
    """HTTP/1.1 that closes a connection which does not get its request's head across; uvicorn waits for ever."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Read on, and wait again where what came is the beginning of another request."""
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()
        elif self._late is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if not self._is_answering() and not self.transport.is_closing():
            self.transport.close()


def server(app: Any) -> uvicorn.Server:
    """Return the server of an application, with all bounds."""
    return uvicorn.Server(
        uvicorn.Config(
            app, http=Connection, limit_concurrency=CONNECTIONS, log_level="warning", access_log=False, lifespan="off"
        )
    )
