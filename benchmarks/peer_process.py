"""Communication with a peer process by lines of JSON over its standard input and output.

The peer works only on request and uses no CPU while it waits, so that arms can alternate. This module imports only the
standard library, because the peer may run in another environment.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ORIGINAL_ENVIRONMENT = dict(os.environ)
"""Environment variables without Arena's changes, for peers. Import this module before Arena."""


def find_benchmarks(checkout: Path) -> Path:
    """Return the folder of benchmarks in a checkout. In older ones it is below `tests`."""
    return next(folder for folder in (checkout / "benchmarks", checkout / "tests" / "benchmarks") if folder.exists())


class PeerProcess:
    """Client of a peer process. The peer's stderr goes to a file, whose end is shown if the peer ends early."""

    def __init__(self, command: Sequence[str | Path], environ: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed on leaving
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=dict(environ),
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer. Raises SystemExit if the peer has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"the peer ended with exit code {self._process.wait()}:\n{self._log.read()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class PeerChannel:
    """The peer's end of the connection. Once created, the peer's other output goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next request. Returns None if the client has closed the connection."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def send(self, **answer: Any) -> None:
        """Send the answer."""
        print(json.dumps(answer), file=self._out, flush=True)


class Stopwatch:
    """Stopwatch of this process's wall and CPU time. It starts when it is created."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Return the seconds so far."""
        return {"seconds": time.perf_counter() - self._wall, "cpu_seconds": time.process_time() - self._cpu}
