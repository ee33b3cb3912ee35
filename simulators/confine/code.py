"""Run model-written Python in an isolated child process; `cell.py` builds the isolation.

Code has no network, no files except an empty scratch directory and the interpreter's own (without site-packages), and
no other processes. Time, memory, threads, files and output are limited. Code never runs without isolation: if that is
unavailable, ConfineError is raised. Needs Linux on x86_64 or aarch64.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

from simulators.confine import ConfineError, cells
from simulators.confine.interpreter import ENVIRONMENT, find_interpreter
from simulators.confine.syscalls import MACHINES

Reason = Literal["", "timeout", "memory", "output", "killed", "refused"]

MAX_CHARACTERS = 100_000
"""Maximum number of characters of code, and of standard input."""
MB = 1 << 20

# Program that prints the parts of the isolation that it can break.
TRIAL = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
wrong = [path for path in ("/etc/passwd", "/proc/self", "/sys/kernel", "/dev/null", "/bin/sh") if os.path.exists(path)]
wrong += ["network"] * (libc.socket(2, 1, 0) >= 0) + ["fork"] * (libc.fork() >= 0) + ["root"] * (os.getuid() == 0)
started, stop = 0, threading.Event()
threading.stack_size(65536)
try:
    while started < 100:
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
    wrong.append("threads")
except RuntimeError:
    stop.set()
print(*wrong, sep=", ")
"""


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    stdout: str
    stderr: str
    reason: Reason
    """Reason why the run was stopped; "" if it ended by itself."""
    seconds: float
    """Wall-clock time."""

    def observation(self) -> str:
        """Return the output, the error output and a note on why the run was stopped, as one text for the model."""
        notes = {
            "timeout": "[stopped: out of time]",
            "memory": "[stopped: out of memory]",
            "output": "[stopped: too much output]",
            "killed": "[stopped: killed]",
            "refused": "[refused]",
        }
        parts = [self.stdout.rstrip(), self.stderr.rstrip(), notes.get(self.reason, "")]
        return "\n".join(part for part in parts if part) or "[no output]"


def run_python(
    code: str, *, seconds: float = 5.0, memory_mb: int = 512, output_bytes: int = 10_000, stdin: str = ""
) -> Outcome:
    """Run model-written code in an isolated process until it ends or reaches a limit, and return its output.

    Limits: `seconds` of CPU time, `2 * seconds + 1` of wall-clock time (so that the machine's load hardly matters),
    `memory_mb` of address space, and `output_bytes` in total. Code that is too long is not run: `reason` is "refused".
    Raises ConfineError if this system cannot confine code, and ValueError for invalid limits. No process remains when
    this returns.
    """
    obstacle = find_obstacle()
    if obstacle:
        raise ConfineError(obstacle)
    return _run(code, seconds, memory_mb, output_bytes, stdin)


def find_obstacle() -> str:
    """Return "" if a trial run shows that code can be confined here, else the reason and a remedy."""
    try:
        return _try_escape()
    except ConfineError as error:
        return str(error)


@functools.cache
def _try_escape() -> str:
    """Run code that tries to break the isolation. Returns "" if it fails to, else the problem. Cached.

    Raises ConfineError, which is not cached, if the trial was stopped before it had a result.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in MACHINES:
        return f"running generated code needs Linux on {' or '.join(MACHINES)}, this is {platform.platform()}"
    trial = _run(TRIAL, cells.START_SECONDS, 256, 1_000, "")
    if trial.reason in ("killed", "timeout"):
        raise ConfineError(f"generated code cannot be confined here: a trial was stopped: {trial.observation()[-200:]}")
    if trial.reason or trial.stderr:
        return f"generated code cannot be confined here: a trial failed: {trial.observation()[-200:]}"
    if trial.stdout.strip():
        return (
            f"generated code cannot be confined here: a trial had access to {trial.stdout.strip()}; "
            "run as an ordinary user, or as root where user 65534 exists"
        )
    return ""


def _run(code: str, seconds: float, memory_mb: int, output_bytes: int, stdin: str) -> Outcome:
    if not 0 < seconds < math.inf or memory_mb < 64 or output_bytes < 0:
        raise ValueError("seconds must be positive, memory_mb at least 64 and output_bytes at least 0")
    if len(code) > MAX_CHARACTERS or len(stdin) > MAX_CHARACTERS:
        return Outcome("", f"code and input may have {MAX_CHARACTERS:,} characters", "refused", 0.0)
    try:
        (code + stdin).encode()
    except UnicodeEncodeError:
        return Outcome("", "the code holds characters that no file can hold (lone surrogates)", "refused", 0.0)
    # The alarm ends the cell's outer process even if this process is killed.
    job = cells.make_job(
        math.ceil(cells.START_SECONDS + 2 * seconds) + 5,
        **find_interpreter()._asdict(),
        environment=ENVIRONMENT,
        texts={"code.py": code, "stdin": stdin},
        limits=cells.make_limits(memory_mb * MB, seconds, cells.SCRATCH_MB * MB),
    )
    return _CellMonitor(2 * seconds + 1, output_bytes).run(job, math.ceil(seconds))


class _CellMonitor:
    """Monitor of one cell (isolated process): collects its output, and stops it at the time or output limit."""

    def __init__(self, seconds: float, output_bytes: int) -> None:
        self.seconds, self.output_bytes = seconds, output_bytes
        self.output = {"stdout": bytearray(), "stderr": bytearray(), "report": bytearray()}
        self.reason: Reason = ""
        self.started = 0.0

    def run(self, job: dict[str, Any], cpu_limit: int) -> Outcome:
        """Run a job in a new cell and return the outcome. Raises ConfineError if the cell cannot be started."""
        with os.fdopen(os.memfd_create("job"), "w+b") as file:
            file.write(cells.pack_job(job))
            file.seek(0)
            cell, report = cells.start_cell(file.fileno(), subprocess.PIPE)
        try:
            with cell, os.fdopen(report, "rb", buffering=0) as reports:
                try:
                    self._collect(cell, reports)
                finally:
                    cells.stop_cell(cell)
        finally:
            seconds = time.monotonic() - self.started
        return self._make_outcome(seconds, cpu_limit, cell.returncode)

    def _collect(self, cell: subprocess.Popen[bytes], reports: Any) -> None:
        deadline = time.monotonic() + cells.START_SECONDS
        with selectors.DefaultSelector() as ready:
            for name, stream in (("stdout", cell.stdout), ("stderr", cell.stderr), ("report", reports)):
                assert stream is not None
                ready.register(stream, selectors.EVENT_READ, name)
            while ready.get_map():
                for key, _ in ready.select(deadline - time.monotonic()):
                    piece = os.read(key.fd, 65536)
                    if not piece:
                        ready.unregister(key.fileobj)
                    self.output[key.data] += piece
                if not self.started and self.output["report"]:
                    self.started = time.monotonic()
                    deadline = self.started + self.seconds
                if len(self.output["stdout"]) + len(self.output["stderr"]) > self.output_bytes:
                    self.reason = "output"
                elif ready.get_map() and time.monotonic() >= deadline:
                    self.reason = "timeout"
                if self.reason:
                    return

    def _make_outcome(self, seconds: float, cpu_limit: int, exit_code: int) -> Outcome:
        reports = {
            line.partition(" ")[0]: line.partition(" ")[2] for line in self.output["report"].decode().splitlines()
        }
        stdout = self.output["stdout"][: self.output_bytes]
        stderr = self.output["stderr"][: self.output_bytes - len(stdout)].decode("utf-8", "replace")
        if "error" in reports or "started" not in reports:
            problem = reports.get("error") or stderr.strip()[-200:]
            if problem:
                raise ConfineError(f"generated code cannot be confined here: {problem}; {cells.suggest_remedy()}")
            is_killed = exit_code < 0 and not self.reason  # otherwise the monitor itself stopped it
            raise ConfineError(
                f"a cell for generated code was ended by signal {-exit_code} ({signal.strsignal(-exit_code)}) before "
                "it started" if is_killed else f"a cell for generated code did not start in {cells.START_SECONDS:g} s"
            )  # fmt: skip
        status, cpu = reports.get("status", f"{int(signal.SIGKILL)} 0").split()
        code = os.waitstatus_to_exitcode(int(status))
        reason = self.reason
        if not reason and code < 0:
            is_cpu_spent = code == -signal.SIGXCPU or float(cpu) >= cpu_limit - 0.1
            reason = "timeout" if is_cpu_spent else "killed"
        if not reason and code and stderr.rstrip().rpartition("\n")[2].startswith("MemoryError"):
            reason = "memory"
        return Outcome(stdout.decode("utf-8", "replace"), stderr, reason, seconds)
