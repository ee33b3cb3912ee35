"""Connections to OpenEnv servers: running ones by URL, or applications served by a child process."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from games.adapters.child import ROOT, register_kill
from games.base import to_one_line
from games.contracts import GameFull

PYTHON = "ARENA_OPENENV_PYTHON"
"""Environment variable with the path of a Python that has openenv-core. Defaults to Arena's Python."""
START_SECONDS, STEP_SECONDS = 120.0, 100.0
ENDING_SECONDS = 1.0
OPEN_SECONDS = 60.0
"""Timeout of a new session's handshake."""
MAX_MESSAGE_BYTES = 32 << 20
"""Maximum bytes of a message."""
MAX_PROCESSES = 8
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
FULL = "CAPACITY_REACHED"
FULL_SECONDS = 1.0
"""Time for which a full server is not asked again, unless one of this process's sessions ends."""


class ServerError(RuntimeError):
    """Raised if a server cannot be started or reached, or does not answer; the message is one line."""


class ServerFull(ServerError, GameFull):
    """Raised if no server takes a further session now."""


class RequestRefused(Exception):
    """Raised if the server refuses a request; `code` is OpenEnv's error code."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Session:
    """Session with a server over a WebSocket. Each session has its own environment."""

    def __init__(self, server: Server) -> None:
        client = importlib.import_module("websockets.sync.client")
        self.server, self._is_waiting = server, False
        try:
            if server.path:
                self._socket = client.unix_connect(
                    server.path,
                    "ws://localhost/ws",
                    max_size=MAX_MESSAGE_BYTES,
                    open_timeout=OPEN_SECONDS,
                    ping_interval=None,
                )
            else:
                self._socket = client.connect(
                    server.socket_url,
                    max_size=MAX_MESSAGE_BYTES,
                    open_timeout=OPEN_SECONDS,
                    ping_interval=None,
                    proxy=None,
                )
        except Exception as error:  # noqa: BLE001 sockets and handshakes fail in many ways
            server.close()  # so that the next session starts another process
            raise ServerError(f"{server.name} cannot be reached: {to_one_line(str(error))}") from None

    def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer's data.

        Raises RequestRefused if the server answers with an error, and ServerError if it gives no valid answer.
        """
        self._is_waiting = True
        try:
            with contextlib.suppress(
                _import_closed_error()
            ):  # a full server sends an error and closes; it can still be read
                self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(self._socket.recv(timeout=STEP_SECONDS))
            payload = answer["data"]
            if answer["type"] == "error":
                raise RequestRefused(str(payload.get("code")), _describe_error(payload))
            if not isinstance(payload["observation"], dict):
                raise ValueError("an observation is not a JSON object")
        except RequestRefused:
            raise
        except TimeoutError:
            self.server.close()
            self._disconnect()
            raise ServerError(f"{self.server.name} gave no answer within {STEP_SECONDS:g} s") from None
        except Exception as error:  # noqa: BLE001 a server may end, or answer anything
            self.server.await_end()
            self._disconnect()
            raise ServerError(f"{self.server.name} failed: {to_one_line(f'{type(error).__name__}: {error}')}") from None
        finally:
            self._is_waiting = False
        return dict(payload)

    def close(self) -> None:
        """End the session. Also ends the child process if an answer is pending, as after a turn's timeout."""
        if self._is_waiting:
            self.server.close()
        self._disconnect()

    def _disconnect(self) -> None:
        """Close the socket, which ends its thread."""
        with contextlib.suppress(Exception):
            self._socket.close_timeout = 0.5
            self._socket.close()
        _FULL_UNTIL.pop(self.server.env, None)

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self.close()


class Server:
    """OpenEnv server: a running one at a URL, or a child process that serves `module:app` on a Unix socket."""

    def __init__(self, env: str) -> None:
        self.env, self.name = env, f"the server of openenv:{env}"
        self.path, self.socket_url, self._process = "", "", None
        if is_url(env):
            parts = urlsplit(env)
            self.host, self.port = str(parts.hostname), parts.port or 80
            host = f"[{self.host}]" if ":" in self.host else self.host
            self.socket_url = f"ws://{host}:{self.port}{parts.path.rstrip('/')}/ws"
            self.base = parts.path.rstrip("/")
            return
        self.base = ""
        self._folder = tempfile.TemporaryDirectory(prefix="arena-openenv-")
        self.path = str(Path(self._folder.name, "socket"))
        python = os.environ.get(PYTHON) or sys.executable
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        python_path = os.pathsep.join(path for path in paths if path and Path(path).resolve() != ROOT)
        command = [python, "-P", "-c", SERVER_PROGRAM, env, self.path]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 the process writes to it as long as it lives
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            env={**os.environ, "PYTHONPATH": python_path, "TMPDIR": self._folder.name},
        )  # fmt: skip
        self._kill = register_kill(self, self._process)
        self._await_start()

    @property
    def is_alive(self) -> bool:
        """Return whether the child process is running; True for a server at a URL."""
        return self._process is None or self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of the child process; 0 for a server at a URL."""
        return 0 if self._process is None else self._process.pid

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the environment's actions. Raises ServerError if the server does not answer."""
        try:
            connection = (
                _UnixConnection(self.path)
                if self.path
                else http.client.HTTPConnection(self.host, self.port, timeout=20)
            )
            connection.request("GET", f"{self.base}/schema", headers={"Host": "localhost"})
            text = connection.getresponse().read(MAX_MESSAGE_BYTES)
            connection.close()
            action = json.loads(text)["action"]
            return dict(action)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ServerError(
                f"{self.name} does not describe its actions: {to_one_line(f'{type(error).__name__}: {error}')}"
            ) from None

    def await_end(self) -> None:
        """Wait up to `ENDING_SECONDS` for the child process to end, so that no new session uses a dying server."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_SECONDS)

    def close(self) -> None:
        """Kill the child process, if there is one, and delete its files."""
        if self._process is not None:
            self._kill()
            self._errors.close()
            self._folder.cleanup()

    def _await_start(self) -> None:
        """Wait until the process accepts connections. Otherwise raises ServerError with the last line of its stderr."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.is_alive:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
                trial.connect(self.path)
                return
            time.sleep(0.05)
        self._errors.seek(max(0, self._errors.seek(0, 2) - 4000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        self.close()
        raise ServerError(f"{self.name} does not start: {to_one_line(lines[-1], 300) if lines else 'it says nothing'}")


def _import_closed_error() -> type[Exception]:
    """Import the exception that websockets raises for a closed connection."""
    closed: type[Exception] = importlib.import_module("websockets.exceptions").ConnectionClosed
    return closed


SERVER_PROGRAM = """
import os, shutil, sys, threading
def end():
    sys.stdin.read()
    shutil.rmtree(os.path.dirname(sys.argv[2]), ignore_errors=True)
    os._exit(0)
threading.Thread(target=end, daemon=True).start()
import resource
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import uvicorn
uvicorn.run(sys.argv[1], uds=sys.argv[2], log_level="error")
"""
"""Program that serves an application until its standard input closes, as when the parent ends. Removes its folder."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self._path)


_SERVERS: dict[tuple[int, str], list[Server]] = {}
_SCHEMAS: dict[tuple[str | None, str], dict[str, Any]] = {}
_STARTING = threading.Lock()
_FULL_UNTIL: dict[str, float] = {}
"""Monotonic times until which environments have no free session."""


def get_server(env: str) -> Server:
    """Return a running server of an environment, started if necessary. Raises ServerError if it does not start."""
    with _STARTING:
        return _find_living_servers(env)[0]


def action_schema(env: str) -> dict[str, Any]:
    """Return the JSON schema of an environment's actions. Raises ServerError if the server does not answer.

    An application's schema is cached, so that creating a game does not fail if its server has just ended.
    """
    key = os.environ.get(PYTHON), env
    if key not in _SCHEMAS or is_url(env):
        _SCHEMAS[key] = get_server(env).schema()
    return _SCHEMAS[key]


def begin_session(env: str, seed: int) -> tuple[Session, dict[str, Any]]:
    """Open a session and reset it with a seed. Returns the session and the answer to the reset.

    Starts another child process of an application if all are full, up to `MAX_PROCESSES`. Raises ServerFull if no
    session is free, and RequestRefused for other errors of the environment.
    """
    if time.monotonic() < _FULL_UNTIL.get(env, 0.0):
        raise ServerFull(f"the server of openenv:{env} takes no further session")
    with _STARTING:
        servers = list(_find_living_servers(env))
    for count in range(MAX_PROCESSES + 1):
        if count == len(servers):
            with _STARTING:
                servers.append(Server(env))
                _SERVERS[os.getpid(), env].append(servers[-1])
        session = Session(servers[count])
        try:
            return session, session.ask("reset", {"seed": seed})
        except RequestRefused as refused:
            session.close()
            if refused.code != FULL:
                raise
            if is_url(env) or count + 1 >= MAX_PROCESSES:
                _FULL_UNTIL[env] = time.monotonic() + FULL_SECONDS
                raise ServerFull(f"{servers[count].name} takes no further session: {refused}") from None
    raise ServerError(f"openenv:{env} has too many sessions")


def _find_living_servers(env: str) -> list[Server]:
    servers = _SERVERS.setdefault((os.getpid(), env), [])
    for server in [server for server in servers if not server.is_alive]:
        server.close()
        servers.remove(server)
    if not servers:
        servers.append(Server(env))
    return servers


def is_url(env: str) -> bool:
    """Return whether the environment is given by a server's URL."""
    return env.startswith(("http://", "ws://", "https://", "wss://"))


def _describe_error(payload: dict[str, Any]) -> str:
    """Return an error answer's message with the first three of pydantic's details."""
    errors = payload.get("errors")
    details = [
        f"{'.'.join(map(str, detail.get('loc', ())))}: {detail.get('msg')}"
        for detail in errors or []
        if isinstance(detail, dict)
    ]
    return to_one_line("; ".join([str(payload.get("message")), *details[:3]]), 300)
