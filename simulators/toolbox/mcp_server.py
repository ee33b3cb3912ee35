"""Connection to an MCP server over stdio, or over HTTP on loopback, through the official client library.

The library is asynchronous. Each connection runs it in its own thread, which also starts and stops the server.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import binascii
import concurrent.futures
import contextlib
import json
import logging
import shlex
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from games.base import to_one_line
from simulators.toolbox.limits import ServerEnded
from simulators.toolbox.loopback import http_server
from simulators.toolbox.stdio import server_process
from simulators.tools import Content

if TYPE_CHECKING:
    import mcp
    import mcp_types

START_SECONDS = 60.0
"""Seconds for a server to start and to list its tools."""
STOP_SECONDS = 10.0
"""Seconds to wait for a server to stop when this process ends. A server is killed after 4 s."""
MAX_PICTURES = 4
MAX_PICTURE_BYTES = 8 << 20
"""Maximum size of a picture in a result, in bytes."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
THREAD = "arena-mcp"
"""Name of the threads of connections."""
CLOSED, TIMED_OUT = -32000, -32001
"""Error codes of the library for a closed connection and for an expired timeout."""

REFUSED: dict[str, str] = {}
"""Servers that must not be used because an untrusted run folder names them: reason by address."""
Result = TypeVar("Result")
_LIVE: WeakSet[McpServer]


class McpServer:
    """Client of an MCP server, given as a command or a URL.

    A command is started at the first request, and again if it has ended. Raises ValueError for an invalid address, for
    one in `REFUSED`, and if the library is missing.
    """

    def __init__(self, address: str) -> None:
        try:
            import mcp  # noqa: F401 checks that it is installed
        except ImportError:
            raise ValueError("mcp is not installed: pip install 'arena-selfplay[tools]'") from None
        if address in REFUSED:
            raise ValueError(REFUSED[address])
        self.address = address
        _check_address(address)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._last_error_line = ""
        """Last line of the standard error of the last server process."""
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it logs a traceback for each unreadable line

    def tools(self) -> list[mcp_types.Tool]:
        """Return the server's tools. Raises ServerEnded if the request fails, ValueError for a malformed list."""
        from mcp import MCPError
        from pydantic import ValidationError

        try:
            return self._ask(_list_tools(self._connect()), START_SECONDS).result()
        except MCPError as error:
            raise ServerEnded(to_one_line(str(error), 200)) from None
        except ValidationError:
            raise ValueError("its list of tools is malformed") from None

    def call(self, name: str, arguments: dict[str, Any], seconds: float) -> Content:
        """Call a tool and return its result.

        Raises TimeoutError after `seconds`, ServerEnded if the server does not start or ends, and ValueError for an
        error that the server reports.
        """
        from mcp import MCPError
        from pydantic import ValidationError

        try:
            json.dumps(arguments, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("the arguments contain invalid characters (lone surrogates)") from None
        try:
            client = self._connect()
            result = self._ask(
                client.call_tool(name, arguments, read_timeout_seconds=seconds), seconds + STOP_SECONDS
            ).result()
        except MCPError as error:
            if error.code == TIMED_OUT:
                raise TimeoutError from None
            if error.code == CLOSED:
                self.close()
                raise ServerEnded("its server ended") from None
            raise ValueError(to_one_line(str(error), 200)) from None
        except ValidationError:
            raise ValueError("its server's answer is malformed") from None
        content = _read_content(result)
        if result.is_error:
            raise ValueError(content.text)
        return content

    def close(self) -> None:
        """Tell the server to stop, if it runs. Its thread kills it after 4 s."""
        with self._lock:
            self._thread = None
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._closing.set)

    def _connect(self) -> mcp.Client:
        """Return the connected client; starts the server if it is not running. Raises ServerEnded if it cannot."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._connected: concurrent.futures.Future[mcp.Client] = concurrent.futures.Future()
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
            connected = self._connected
        try:
            return connected.result(START_SECONDS)
        except Exception as error:  # noqa: BLE001 the library raises errors of many kinds
            self.close()
            why = self._last_error_line or _describe_error(error)
            raise ServerEnded(f"its server does not start: {to_one_line(why, 200)}") from None

    def _run(self) -> None:
        """Connect, serve requests until `close`, and stop the server; runs in the connection's thread."""
        connected = self._connected
        try:
            asyncio.run(self._serve(connected))
        except BaseException as error:  # noqa: BLE001 it affects this connection only
            if not connected.done():
                connected.set_exception(ConnectionError(_describe_error(error)))

    async def _serve(self, connected: concurrent.futures.Future[mcp.Client]) -> None:
        from mcp import Client

        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        errors = bytearray()
        try:
            async with asyncio.timeout(START_SECONDS) as start:
                async with Client(self._make_transport(errors), read_timeout_seconds=START_SECONDS) as client:
                    start.reschedule(None)
                    connected.set_result(client)
                    _LIVE.add(self)
                    await self._closing.wait()
        finally:
            self._last_error_line = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]

    def _make_transport(self, errors: bytearray) -> Any:
        """Return the transport for the library. `errors` gets the end of a command's standard error."""
        if "://" in self.address:
            return http_server(self.address)
        return server_process(shlex.split(self.address), errors)

    def _ask(self, request: Coroutine[Any, Any, Result], seconds: float) -> concurrent.futures.Future[Result]:
        """Run a request in the connection's thread, wait for it, and return its completed future.

        Raises ServerEnded if the connection ends, TimeoutError after `seconds`.
        """
        assert self._loop
        try:
            future = asyncio.run_coroutine_threadsafe(request, self._loop)
        except RuntimeError:  # the loop has ended
            request.close()
            raise ServerEnded("its server ended") from None
        done, _ = concurrent.futures.wait([future], seconds)
        if not done:
            future.cancel()
            raise TimeoutError
        if future.cancelled():
            raise ServerEnded("its server ended")
        return future


_LIVE = WeakSet()


@atexit.register
def _close_all() -> None:
    for server in list(_LIVE):
        server.close()
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(STOP_SECONDS)


async def _list_tools(client: mcp.Client) -> list[mcp_types.Tool]:
    return list((await client.list_tools()).tools)


def _check_address(address: str) -> None:
    """Raise ValueError unless an address is a command, or a URL on loopback."""
    if "://" in address:
        try:
            parts = urlsplit(address)
            is_local = parts.scheme in ("http", "https") and parts.hostname in LOOPBACK and parts.port != 0
        except ValueError:  # a malformed host or port
            is_local = False
        if not is_local:
            raise ValueError(
                f"mcp: {to_one_line(address, 80)} is not a URL on this machine (http://127.0.0.1:PORT/mcp)"
            )
        return
    try:
        words = shlex.split(address)
    except ValueError as error:
        raise ValueError(f"mcp: {to_one_line(address, 80)} cannot be read as a command: {error}") from None
    if not words or "\0" in address:
        raise ValueError("mcp: name a command, such as python server.py, or a URL")


def _read_content(result: mcp_types.CallToolResult) -> Content:
    """Return a result's texts and pictures. Raises ValueError for a picture that is too large or not base64."""
    texts: list[str] = []
    pictures: list[bytes] = []
    for part in result.content:
        if part.type == "text":
            texts.append(part.text)
        elif part.type == "image" and len(pictures) < MAX_PICTURES:
            if len(part.data) > MAX_PICTURE_BYTES * 4 // 3:
                raise ValueError(f"the picture has more than {MAX_PICTURE_BYTES:,} bytes")
            try:
                pictures.append(base64.b64decode(part.data, validate=True))
            except (binascii.Error, ValueError):
                raise ValueError("the picture is not base64") from None
    if not texts and not pictures and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":")))
    return Content("\n".join(texts), tuple(pictures))


def _describe_error(error: BaseException) -> str:
    """Return an error's message in one line; for a group, the message of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer in {START_SECONDS:g} s"
    return to_one_line(str(error) or type(error).__name__, 200)
