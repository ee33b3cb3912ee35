"""Child processes, possibly in other Python environments, that exchange lines of JSON with Arena."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from games.adapters import child_server
from games.base import to_one_line

LONGEST = 32 << 20
"""Maximum bytes of an answer."""
ROOT = Path(__file__).parents[2]


class ChildError(RuntimeError):
    """Raised if a child process fails on a request, or does not answer; the message is one line."""


class Child:
    """A child process that answers one request at a time, from any thread. It ends with this object or this process.

    It serves the class `Server` of `module` (see `child_server`) in the interpreter `python`, which need not have
    Arena. `environment` has further environment variables; `folder` is removed at its end. Raises ChildError if
    the process cannot be started.
    """

    def __init__(
        self,
        python: str,
        module: ModuleType,
        name: str,
        environment: Mapping[str, str] | None = None,
        folder: TemporaryDirectory[str] | None = None,
    ) -> None:
        self.name, self._folder = name, folder
        self._lock = threading.Lock()
        self._forgotten: list[int] = []
        self.owner: int | None = None
        """Rollout number of the pending request, or 0 if it has none. None between requests."""
        self._buffer = b""
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        outside = os.pathsep.join(path for path in paths if path and Path(path).resolve() != ROOT)
        command = [python, "-P", child_server.__file__, str(module.__file__)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, "PYTHONPATH": outside, **(environment or {})},
            )  # fmt: skip
        except OSError as error:
            raise ChildError(f"{name} cannot be started: {to_one_line(str(error))}") from None
        self._end = end_process(self, self._process)

    @property
    def is_alive(self) -> bool:
        """Return True while the process runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request.

        Raises ChildError if the answer is an `error`; or, having ended the process, if none comes within `seconds`.
        """
        with self._lock:
            dropped, self._forgotten = self._forgotten, []
            self.owner = int(request.get("rollout", 0))
            try:
                answer = self._exchange(
                    json.dumps({**request, "drop": dropped}).encode() + b"\n", time.monotonic() + seconds
                )
            except (OSError, ValueError, TimeoutError) as error:
                self.close()
                raise ChildError(f"{self.name}: {to_one_line(str(error), 300) or 'the process has ended'}") from None
            finally:
                self.owner = None
        if "error" in answer:
            raise ChildError(to_one_line(str(answer["error"]), 400))
        return answer

    def forget(self, number: int) -> None:
        """Have the process drop the rollout of this number, with the next request."""
        self._forgotten.append(number)

    def close(self) -> None:
        """Kill the process with its session, and remove its folder."""
        self._end()
        if self._folder is not None:
            self._folder.cleanup()

    def _exchange(self, line: bytes, deadline: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or not self.is_alive:
            raise ValueError("the process has ended")
        stdin.write(line)
        stdin.flush()
        while b"\n" not in self._buffer:
            if not select.select([stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("no answer in time: the process was ended")
            read = os.read(stdout.fileno(), 1 << 16)
            if not read or len(self._buffer) > LONGEST:
                raise ValueError("the process has ended" if not read else "the answer is too long")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("the answer is no object")
        return answer


def end_process(holder: object, process: subprocess.Popen[bytes]) -> Callable[[], object]:
    """Return a function that ends a process with its session, and have it called when `holder` or this process ends."""
    return weakref.finalize(holder, _end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child's session and reap it."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()
