"""Child processes that exchange lines of JSON with Arena, possibly in another Python environment."""

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

MAX_ANSWER_BYTES = 32 << 20
"""Maximum bytes of an answer."""
INTERRUPT_SECONDS = 1.0
"""Time within which an abandoned step notices, while it waits for an answer, that it was interrupted."""
ROOT = Path(__file__).parents[2]


class ChildError(RuntimeError):
    """Raised if a child process reports an error or does not answer; the message is one line."""


class Child:
    """Child process that answers one request at a time. It is killed when this object or this process ends.

    The interpreter `python` runs the class `Server` of `module` (see `child_server`); Arena need not be installed
    there. `name` identifies the process in errors, and `environment` adds environment variables. The process has a
    temporary folder of its own, which is removed with it. Threads may share the object. Raises ChildError if the
    process cannot be started.
    """

    def __init__(
        self,
        python: str,
        module: ModuleType,
        name: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._folder = TemporaryDirectory(prefix="arena-child-", ignore_cleanup_errors=True)
        self._lock = threading.Lock()
        self._discarded: list[int] = []
        self.owner: int | None = None
        """Rollout number of the request in progress, or 0 if it names none. None if no request is in progress."""
        self._buffer = b""
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        python_path = os.pathsep.join(path for path in paths if path and Path(path).resolve() != ROOT)
        command = [python, "-P", child_server.__file__, str(module.__file__), self._folder.name]
        own = {"PYTHONPATH": python_path, "TMPDIR": self._folder.name}
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, **own, **(environment or {})},
            )  # fmt: skip
        except OSError as error:
            raise ChildError(f"{name} cannot be started: {to_one_line(str(error))}") from None
        self._kill = register_kill(self, self._process)

    @property
    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises ChildError if the answer is an `error`. If no valid answer arrives within `seconds`, kills the process
        and raises ChildError.
        """
        with self._lock:
            discarded_children, self._discarded = self._discarded, []
            self.owner = int(request.get("rollout", 0))
            try:
                answer = self._exchange(
                    json.dumps({**request, "drop": discarded_children}).encode() + b"\n", time.monotonic() + seconds
                )
            except BaseException as error:
                self.close()  # after an interrupt, too: the next request would read this one's answer
                if not isinstance(error, OSError | ValueError):
                    raise
                raise ChildError(f"{self.name}: {to_one_line(str(error), 300) or 'the process has ended'}") from None
            finally:
                self.owner = None
        if "error" in answer:
            raise ChildError(to_one_line(str(answer["error"]), 400))
        return answer

    def discard_rollout(self, number: int) -> None:
        """Tell the process, with the next request, to discard the rollout with this number."""
        self._discarded.append(number)

    def close(self) -> None:
        """Kill the process and its descendants, and remove its temporary folder."""
        self._kill()
        self._folder.cleanup()

    def _exchange(self, line: bytes, deadline: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or not self.is_alive:
            raise ValueError("the process has ended")
        stdin.write(line)
        stdin.flush()
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if not select.select([stdout], [], [], min(max(remaining, 0), INTERRUPT_SECONDS))[0]:
                if remaining <= INTERRUPT_SECONDS:
                    raise TimeoutError("no answer in time: the process was ended")
                continue
            chunk = os.read(stdout.fileno(), 1 << 16)
            if not chunk or len(self._buffer) > MAX_ANSWER_BYTES:
                raise ValueError("the process has ended" if not chunk else "the answer is too long")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("the answer is not a JSON object")
        return answer


def register_kill(owner: object, process: subprocess.Popen[bytes]) -> Callable[[], object]:
    """Return a function that kills a process and its session.

    The function also runs when `owner` is garbage-collected and when this process exits.
    """
    return weakref.finalize(owner, _kill_session, process)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()
