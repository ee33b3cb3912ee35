"""HTTP server of the viewer, on a port of this machine."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from analysis.view.services import Services
from arena.errors import ConfigError

HOST = "127.0.0.1"
CONNECTIONS = 128


def serve(
    paths: Sequence[Path], services: Services, port: int, on_open: Callable[[str], None], seat: Sequence[str] = ()
) -> None:
    """Serve the viewer's page for these runs or folders of runs until Ctrl-C. Raises ConfigError as `prepare_server`.

    `on_open` is called with the page's link. `seat` may hold arguments of `arena` that start a match with a human
    player; the link then leads to that match.
    """
    server, listening, link = prepare_server(paths, services, port, seat)
    on_open(link)
    server.run(sockets=[listening])


def prepare_server(
    paths: Sequence[Path], services: Services, port: int, seat: Sequence[str] = ()
) -> tuple[Any, socket.socket, str]:
    """Return a server that is ready to run, its listening socket, and the page's link with the access token.

    `seat` is as for `serve`. Raises ConfigError if packages are missing or the port is taken.
    """
    try:
        from agents.connections import make_server
        from analysis.view.app import Viewer, make_application
        from analysis.view.runs import Library
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'arena-selfplay[serve,analysis]'") from None
    view, token = Viewer(Library(paths), services), secrets.token_urlsafe(32)
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise ConfigError(f"--port {port}: {error.strerror or error}: take another, or --port 0") from None
    port = listener.getsockname()[1]
    server = make_server(
        make_application(view, token, port),
        CONNECTIONS,
        log_level="critical",
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    play_path = f"/play?id={view.seats.begin('arena play', seat, inf)}" if seat else ""
    return server, listener, f"http://{HOST}:{port}/#token={token}{play_path}"
