"""In-memory database that a model may query. Model-written SQL runs in a worker process (`sql_worker.py`).

The simulator's own code uses `connection`. A model's statement runs on a copy in the worker, which cannot open files or
exceed its memory limit; permitted changes are copied back. Raises ConfineError except on Linux on x86_64 or aarch64.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import platform
import selectors
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from simulators.confine import ConfineError
from simulators.confine.interpreter import find_base
from simulators.confine.syscalls import COMPUTING, MACHINES, build_filter

WORKER = Path(__file__).with_name("sql_worker.py")
MEMORY = 256 << 20
"""Address space of the worker in bytes, including the copy of the database."""
ANSWER_SECONDS = 60.0
"""Wall-clock seconds after which an unresponsive worker is killed, even on a busy machine."""
MAX_CHARACTERS = 10_000
"""Maximum number of characters of a statement."""
PIPE = 1 << 20
TOO_MUCH_MEMORY = "Error: the query takes too much memory"
"""The worker's message for a query that exceeds its memory."""


@dataclass(frozen=True)
class Limits:
    """Limits of a query: CPU seconds, steps of SQLite's virtual machine, result rows and characters."""

    seconds: float = 2.0
    steps: int = 20_000_000  # equal on all machines
    rows: int = 50
    characters: int = 1_800


class Database:
    """SQLite database in memory: `connection` is for the simulator, `query` for model-written SQL.

    `script` fills the database. A deep copy is an independent database, so that a game that holds one can be cloned.
    """

    def __init__(self, script: str = "", limits: Limits | None = None) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.limits = limits or Limits()
        if script:
            self.connection.executescript(script)

    def query(self, sql: str, *, write: bool = False) -> str:
        """Run one model-written statement and return its result as text for the model.

        The text is compact JSON, {"columns": …, "rows": …} or {"changed": n}, or "Error: …". The statement may read
        tables, views and the schema; with `write` it may also insert, update and delete rows. Raises ConfineError if
        this system cannot confine it.
        """
        if len(sql) > MAX_CHARACTERS:
            return f"Error: a query has at most {MAX_CHARACTERS:,} characters"
        try:
            sql.encode()
        except UnicodeEncodeError:
            return "Error: the query contains invalid characters (lone surrogates)"
        bounds = (self.limits.seconds, self.limits.steps, self.limits.rows, self.limits.characters)
        # An empty database has no page and cannot be serialized.
        pages = self.connection.execute("PRAGMA page_count").fetchone()[0]
        text, image = _query_worker((self.connection.serialize() if pages else b"", sql, write, bounds))
        if image:
            self.connection.deserialize(image)
        return text

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self)(limits=self.limits)
        self.connection.backup(copied.connection)
        return copied


class _Worker:
    """Worker process for model-written SQL, with its pipes. Raises ConfineError if it cannot be confined."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux") or platform.machine() not in MACHINES:
            raise ConfineError(f"model-written SQL needs Linux on {' or '.join(MACHINES)}, not {platform.platform()}")
        try:
            self.process = subprocess.Popen(
                [find_base(), "-I", "-S", "-B", str(WORKER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, cwd="/", pipesize=PIPE,
            )  # fmt: skip
        except OSError as error:
            raise ConfineError(f"model-written SQL cannot be confined here: no child process ({error})") from error
        self.owner = os.getpid()
        answer = self.ask((build_filter(platform.machine(), COMPUTING), MEMORY))
        if answer is None or answer[0] != "ready":
            problem = answer[0] if answer else f"its worker does not start: {self.describe_ending()}"
            self.kill()
            raise ConfineError(f"model-written SQL cannot be confined here: {problem}")

    def ask(self, request: Any) -> tuple[str, bytes] | None:
        """Send a request and return (text, changed database), or None if the worker dies or takes over 60 s."""
        data, deadline = marshal.dumps(request), time.monotonic() + ANSWER_SECONDS
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(len(data).to_bytes(4, "big") + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        received = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while len(received) < 8 or len(received) < 8 + int.from_bytes(received[:4], "big"):
                piece = b""
                if ready.select(max(0.0, deadline - time.monotonic())):
                    piece = os.read(self.process.stdout.fileno(), PIPE)
                if not piece:
                    return None
                received += piece
        text = 8 + int.from_bytes(received[4:8], "big")
        return received[8:text].decode("utf-8", "replace"), bytes(received[text:])

    def describe_ending(self) -> str:
        """Return the worker's signal or exit code as text; "" if it exceeded its CPU time or still runs after 5 s."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:  # alive but too slow
            return ""
        if code == -signal.SIGXCPU:
            return ""
        return f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """Kill the worker process and wait for its end."""
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


_lock = threading.Lock()
_workers: list[_Worker] = []
"""This process's worker, if started."""


def _query_worker(request: Any) -> tuple[str, bytes]:
    """Send a query to this process's worker and return its answer (text, changed database or b"").

    A worker that exceeded its limits is replaced. So is one that was killed from outside; then the query is retried
    once, which is safe because it runs on a copy of the database.
    """
    with _lock:
        for _ in range(2):
            worker, answer, ending = _get_worker(), None, ""
            try:
                answer = worker.ask(request)
                ending = "" if answer else worker.describe_ending()
            finally:
                if answer is None or answer[0] == TOO_MUCH_MEMORY:
                    _workers.pop().kill()
            if not ending:
                return answer or ("Error: the query takes too long", b"")
    return f"Error: the query's process was ended twice, by {ending}", b""


def _get_worker() -> _Worker:
    """Return this process's worker; starts one if none is alive. A forked process does not use its parent's."""
    if _workers and _workers[0].owner != os.getpid():
        _workers.clear()  # this process is a fork, and the worker is the parent's
    if _workers and _workers[0].process.poll() is not None:
        _workers.pop().kill()
    if not _workers:
        _workers.append(_Worker())
    return _workers[0]


@atexit.register
def _close() -> None:
    while _workers:
        _workers.pop().kill()
