"""OpenEnv servers: running ones by URL, or applications that a child process serves on this machine."""

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

from games.adapters.child import ROOT, end_process
from games.base import to_one_line

PYTHON = "ARENA_OPENENV_PYTHON"
"""Environment variable with the path of the Python that has openenv-core, if it is not Arena's own."""
START_SECONDS, STEP_SECONDS = 120.0, 100.0
ENDING_SECONDS = 1.0
OPEN_SECONDS = 60.0
"""Time limit of a new session's handshake."""
LONGEST = 32 << 20
"""Maximum bytes of a message."""
MOST_PROCESSES = 8
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
FULL = "CAPACITY_REACHED"


class ServerError(RuntimeError):
    """Raised if a server cannot be started or reached, or does not answer; the message is one line."""


class RequestRefused(Exception):
    """Raised if the server refuses a request; `code` is OpenEnv's error code."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
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
                    max_size=LONGEST,
                    open_timeout=OPEN_SECONDS,
                    ping_interval=None,
                )
            else:
                self._socket = client.connect(
                    server.socket_url, max_size=LONGEST, open_timeout=OPEN_SECONDS, ping_interval=None, proxy=None
                )
        except Exception as error:  # noqa: BLE001 sockets and handshakes fail in many ways
            server.close()  # so that the next session starts another process
            raise ServerError(f"{server.name} cannot be reached: {to_one_line(str(error))}") from None

    def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer. Raises RequestRefused for an error answer, ServerError without one."""
        self._is_waiting = True
        try:
            with contextlib.suppress(
                _import_closed_error()
            ):  # a full server sends an error and closes; it can still be read
                self._socket.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(self._socket.recv(timeout=STEP_SECONDS))
            found = answer["data"]
            if answer["type"] == "error":
                raise RequestRefused(str(found.get("code")), _describe_error(found))
            if not isinstance(found["observation"], dict):
                raise ValueError("an observation is no object")
        except RequestRefused:
            raise
        except TimeoutError:
            self.server.close()
            self._hang_up()
            raise ServerError(f"{self.server.name} gave no answer within {STEP_SECONDS:g} s") from None
        except Exception as error:  # noqa: BLE001 a server may end, or answer anything
            self.server.await_end()
            self._hang_up()
            raise ServerError(f"{self.server.name} failed: {to_one_line(f'{type(error).__name__}: {error}')}") from None
        finally:
            self._is_waiting = False
        return dict(found)

    def close(self) -> None:
        """End the session. Ends the server too if an answer is pending, as after a turn's time limit."""
        if self._is_waiting:
            self.server.close()
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the socket and end its thread."""
        with contextlib.suppress(Exception):
            self._socket.close_timeout = 0.5
            self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self.close()


class Server:
    """Server at a URL, or child process that serves an application `module:name` on a socket of this machine."""

    def __init__(self, env: str) -> None:
        self.name = f"the server of openenv:{env}"
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
        outside = os.pathsep.join(path for path in paths if path and Path(path).resolve() != ROOT)
        command = [python, "-P", "-c", SERVER_PROGRAM, env, self.path]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 the process writes to it as long as it lives
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            env={**os.environ, "PYTHONPATH": outside},
        )  # fmt: skip
        self._end = end_process(self, self._process)
        self._await_start()

    @property
    def is_alive(self) -> bool:
        """Return True if the child process is running, or for a server at a URL."""
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
            text = connection.getresponse().read(LONGEST)
            connection.close()
            action = json.loads(text)["action"]
            return dict(action)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ServerError(
                f"{self.name} does not describe its actions: {to_one_line(f'{type(error).__name__}: {error}')}"
            ) from None

    def await_end(self) -> None:
        """Wait briefly in case the process is ending, so that no further session starts there."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_SECONDS)

    def close(self) -> None:
        """End the child process, if there is one, and delete its files."""
        if self._process is not None:
            self._end()
            self._errors.close()
            self._folder.cleanup()

    def _await_start(self) -> None:
        """Wait until the process listens. If it does not, raises ServerError with the last line of its stderr."""
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
import uvicorn
uvicorn.run(sys.argv[1], uds=sys.argv[2], log_level="error")
"""
"""Program that serves an application until its standard input closes, as when the parent ends. Removes the socket."""


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


def get_server(env: str) -> Server:
    """Return the first running server of an environment, or start one. Raises ServerError if it does not start."""
    with _STARTING:
        return _find_living_servers(env)[0]


def action_schema(env: str) -> dict[str, Any]:
    """Return the JSON schema of an environment's actions. Raises ServerError if the server does not answer.

    The schema of an application is cached, so that a game can be made even if its server has just ended. Only its
    matches fail then.
    """
    key = os.environ.get(PYTHON), env
    if key not in _SCHEMAS or is_url(env):
        _SCHEMAS[key] = get_server(env).schema()
    return _SCHEMAS[key]


def begin_session(env: str, seed: int) -> tuple[Session, dict[str, Any]]:
    """Open a session, reset it with a seed, and return it with the answer to the reset.

    If all child processes of an application are full, another is started, up to `MOST_PROCESSES`. Raises ServerError
    if there is no free session, and RequestRefused for other errors of the environment.
    """
    with _STARTING:
        servers = list(_find_living_servers(env))
    for count in range(MOST_PROCESSES + 1):
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
            if is_url(env) or count + 1 >= MOST_PROCESSES:
                raise ServerError(f"{servers[count].name} takes no further session: {refused}") from None
    raise ServerError(f"openenv:{env} has too many sessions")


def _find_living_servers(env: str) -> list[Server]:
    known = _SERVERS.setdefault((os.getpid(), env), [])
    for each in [each for each in known if not each.is_alive]:
        each.close()
        known.remove(each)
    if not known:
        known.append(Server(env))
    return known


def is_url(env: str) -> bool:
    """Return True if the environment is the URL of a server."""
    return env.startswith(("http://", "ws://", "https://", "wss://"))


def _describe_error(found: dict[str, Any]) -> str:
    """Return an error's message with the first three of pydantic's details."""
    errors = found.get("errors")
    details = [
        f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg')}"
        for each in errors or []
        if isinstance(each, dict)
    ]
    return to_one_line("; ".join([str(found.get("message")), *details[:3]]), 300)
