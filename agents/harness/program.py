"""Agent program in a process of its own, which reads observations as JSON lines on stdin and prints its acts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.errors import HarnessError
from agents.harness import keeper
from agents.reply import to_one_line
from games.untrusted_json import DECODER

OUTPUT_BYTES = 1_000_000
"""Maximum bytes that a program may print for one act."""
ERROR_LENGTH = 250
"""Maximum characters of a program's last line on stderr in an error message."""
LOCAL = "127.0.0.1,localhost"


class Program:
    """Agent program of one match, started for an act if it is not running.

    To act, it prints a line `{"act": "…"}`, after which it keeps running and reads the next observation. Or it prints
    the act in any other form and ends.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Prepare to run the command, with these environment variables in addition to this process's."""
        self.command, self.variables = list(command), dict(variables)
        self._process: Process | None = None
        self._unread = b""
        self._has_acted = False
        """Whether the running process has acted."""
        self._errors: asyncio.Task[str] | None = None

    async def act(self, observation: Mapping[str, Any]) -> str:
        """Send an observation and return the program's act.

        Raises HarnessError if the program fails, ends without an act, or prints too much or invalid UTF-8.
        """
        if self._process is None:
            self._process = await self._start()
        process = self._process
        assert process.stdin and process.stdout
        with suppress(ConnectionError):  # the program may ignore observations
            process.stdin.write(json.dumps(observation).encode() + b"\n")
        output, rest = bytearray(), self._unread
        while True:
            *lines, rest = rest.split(b"\n")
            for i, line in enumerate(lines):
                if (act := parse_act(line)) is not None:
                    self._unread, self._has_acted = b"\n".join([*lines[i + 1 :], rest]), True
                    return act
                output += line + b"\n"
            if len(output) + len(rest) > OUTPUT_BYTES:
                raise self._make_error(f"it printed more than {OUTPUT_BYTES:,} bytes for one act")
            if not (data := await process.stdout.read(1 << 16)):
                break
            rest += data
        await self._wait_for_end(process)
        if self._has_acted and not output + rest:  # it had already ended after its last act: start it again
            return await self.act(observation)
        act = parse_act(rest)
        return self._decode_act(bytes(output + rest)) if act is None else act

    def close(self) -> asyncio.Task[None] | None:
        """Kill the program with all its descendants. Returns the task that waits for their end; None if none runs."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return None
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        return asyncio.create_task(_wait(process))

    async def _start(self) -> Process:
        hosts = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), LOCAL)))
        environment = {**os.environ, "NO_PROXY": hosts, "no_proxy": hosts, **self.variables}
        start = [sys.executable, "-I", "-S", str(Path(keeper.__file__)), str(os.getpid()), *self.command]
        try:
            process = await asyncio.create_subprocess_exec(
                *start, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            raise self._make_error(f"it cannot be started: {error.strerror or error}") from None
        self._errors, self._unread, self._has_acted = asyncio.create_task(_read_tail(process)), b"", False
        return process

    async def _wait_for_end(self, process: Process) -> None:
        """Wait for the program's end. Raises HarnessError if it failed."""
        code = await process.wait()
        self._process = None
        assert self._errors
        last_line = (await self._errors).strip().splitlines()[-1:]
        reason = f": {to_one_line(last_line[0], ERROR_LENGTH)}" if last_line else ""
        if code == keeper.NOT_STARTED:
            raise self._make_error(f"it cannot be started{reason}")
        if code:
            ending = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
            raise self._make_error(f"it ended {ending}{reason}")

    def _decode_act(self, output: bytes) -> str:
        try:
            text = output.decode().strip()
        except UnicodeDecodeError:
            raise self._make_error("its output is not UTF-8") from None
        if not text:
            raise self._make_error('it ended without an act: print the act, or a line {"act": "…"}')
        return text

    def _make_error(self, reason: str) -> HarnessError:
        words = " ".join(Path(word).name for word in self.command)
        return HarnessError(f"agent program {to_one_line(words, 80)}: {reason}")


def parse_act(line: bytes) -> str | None:
    """Return the act of a line `{"act": "…"}`; None for any other line."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        value = DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    act = value.get("act") if isinstance(value, dict) else None
    return act if isinstance(act, str) else None


async def _read_tail(process: Process) -> str:
    """Read a program's stderr to its end, and return the last 4,096 bytes as text."""
    assert process.stderr
    tail = b""
    while data := await process.stderr.read(1 << 16):
        tail = (tail + data)[-4096:]
    return tail.decode("utf-8", "replace")


async def _wait(process: Process) -> None:
    """Wait for the end of a killed program. Reads its remaining output, because asyncio waits for pipes to close."""
    await asyncio.sleep(0)  # let the cancelled reader finish
    assert process.stdout
    while await process.stdout.read(1 << 16):
        pass
    await process.wait()
