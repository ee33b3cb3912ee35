"""Child process of an MCP server, as a transport for the client library.

The library's own transport lets a server fill memory with one endless line and the disk with its standard error. Here a
message that exceeds a maximum length ends the connection, and only the last part of the standard error is kept. When
the connection ends, the server's process group is stopped: by closing its input, then by SIGTERM, then by SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

MAX_MESSAGE_BYTES = 48 << 20
"""Maximum size of a server's message in bytes: four pictures of 8 MB in base64, and texts."""
ERRORS = 2_000
"""Number of bytes kept from the end of the standard error."""
END_SECONDS = 2.0
"""Timeout for a server to exit after its input is closed, and again after SIGTERM."""
PIECE = 1 << 16
POLL = 0.01


@asynccontextmanager
async def server_process(command: Sequence[str], errors: bytearray) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server and yield its message streams: (from the server, to the server).

    `errors` receives the last bytes of its standard error. Raises OSError if the program cannot be started.
    """
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage

    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, env=get_default_environment(),
        limit=MAX_MESSAGE_BYTES,
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    errors_end = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, process.stdout, received)
        tasks.start_soon(_send, process.stdin, sent, received)
        tasks.start_soon(_keep_end, process.stderr, errors, errors_end)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                incoming.close()
                outgoing.close()
                await _stop(process)
                with anyio.move_on_after(END_SECONDS / 4):  # a process that left the group may keep the pipe open
                    await errors_end.wait()
            tasks.cancel_scope.cancel()


async def _receive(stdout: asyncio.StreamReader, received: MemoryObjectSendStream[Any]) -> None:
    """Forward the server's messages until one is too long or the session ends, then discard the rest of its output."""
    import anyio

    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async with received:
            with suppress(ValueError):  # the message is too long
                while line := await stdout.readline():
                    await received.send(_parse(line))
    while await stdout.read(PIECE):
        pass


def _parse(line: bytes) -> Any:
    """Parse a line as a message. For an invalid line, return the error, which the session ignores."""
    import mcp_types
    from mcp.shared.message import SessionMessage

    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _send(
    stdin: asyncio.StreamWriter, sent: MemoryObjectReceiveStream[Any], received: MemoryObjectSendStream[Any]
) -> None:
    """Write the session's messages to the server. Ends the session if the server has closed its input."""
    try:
        async with sent:
            async for message in sent:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{text}\n".encode())
                await stdin.drain()
    except OSError:
        await received.aclose()


async def _keep_end(stderr: asyncio.StreamReader, errors: bytearray, end: Any) -> None:
    while piece := await stderr.read(PIECE):
        errors += piece
        del errors[:-ERRORS]
    end.set()


async def _stop(process: Process) -> None:
    """Stop the server and its process group."""
    assert process.stdin
    with suppress(OSError):
        process.stdin.close()
    if not await _has_ended(process):
        _signal(process, signal.SIGTERM)
        await _has_ended(process)
    _signal(process, signal.SIGKILL)  # the server's children may outlive it
    await _has_ended(process)


async def _has_ended(process: Process) -> bool:
    """Return True if a process exits within `END_SECONDS`. Its children may still keep its pipes open."""
    deadline = asyncio.get_running_loop().time() + END_SECONDS
    while process.returncode is None and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL)
    return process.returncode is not None


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
