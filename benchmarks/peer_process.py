"""A peer in a process of its own that works only when it is asked: one JSON line in, one JSON line out.

Between two questions it waits on its pipe and takes no processor time, so that arms can take turns. Needs nothing but
the standard library, as the peer may run in another environment than ours.
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

THEIRS = dict(os.environ)
"""The environment as it was before Arena set anything in it: import this module first, and give it to peers."""


def benchmarks_of(checkout: Path) -> Path:
    """The folder of benchmarks in a checkout; in older ones it lay among the tests."""
    return next(f for f in (checkout / "benchmarks", checkout / "tests" / "benchmarks") if f.exists())


class Neighbour:
    """Our end. What the peer prints goes to a file, which is shown when it dies."""

    def __init__(self, command: Sequence[str | Path], environ: Mapping[str, str]) -> None:
        self._told = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed on leaving
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            text=True,
            env=dict(environ),
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Have it do one thing, and wait for its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._told.seek(0)
            raise SystemExit(f"the peer ended with {self._process.wait()}:\n{self._told.read()[-4000:]}")
        found: dict[str, Any] = json.loads(line)
        return found

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
        self._told.close()


class Line:
    """The peer's end. Whatever else it prints goes to standard error from now on."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def hear(self) -> dict[str, Any] | None:
        """The next question; None when no more will come."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def say(self, **answer: Any) -> None:
        """Answer it."""
        print(json.dumps(answer), file=self._out, flush=True)


class Stopwatch:
    """Wall and processor seconds of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Both, so far."""
        return {"seconds": time.perf_counter() - self._wall, "cpu_seconds": time.process_time() - self._cpu}
