"""Start and stop cells, which are isolated processes for model-written code.

`cell.py` builds a cell, `code.py` runs code in one. `start_program` starts a long-lived program that communicates
through its standard streams.
"""

from __future__ import annotations

import marshal
import math
import os
import platform
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from simulators.confine import ConfineError
from simulators.confine.interpreter import find_base
from simulators.confine.syscalls import build_filter

CELL = Path(__file__).with_name("cell.py")
START_SECONDS = 30.0
"""Timeout for building a cell, which takes 0.05 s on a quiet machine."""
SCRATCH_MB = 16
OPEN_FILES = 64
THREADS = 32
Limits = Mapping[str, tuple[int, int]]
"""Soft and hard limit by name, as in `resource`."""


def make_limits(memory: int, cpu_seconds: float, file_bytes: int) -> Limits:
    """Return a cell's resource limits: bytes of address space, CPU seconds, bytes per file, and fixed others."""
    cpu = math.ceil(cpu_seconds)
    return {
        "RLIMIT_AS": (memory,) * 2,
        "RLIMIT_CPU": (cpu, cpu + 1),
        "RLIMIT_FSIZE": (file_bytes,) * 2,
        "RLIMIT_NOFILE": (OPEN_FILES,) * 2,
        "RLIMIT_NPROC": (THREADS,) * 2,
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_MEMLOCK": (0, 0),
        "RLIMIT_SIGPENDING": (OPEN_FILES,) * 2,
    }


def start_cell(stdin: int, stderr: int) -> tuple[subprocess.Popen[bytes], int]:
    """Start a cell's outer process, which reads the job from `stdin`.

    Returns the process and the file descriptor of its reports. The cell ends with the calling thread. Raises
    ConfineError if no process can be started.
    """
    report, write_end = os.pipe()
    try:
        cell = subprocess.Popen(
            [find_base(), "-I", "-S", "-B", str(CELL), str(write_end)],
            stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, pass_fds=[write_end], env={}, bufsize=0,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except OSError as error:
        os.close(report)
        raise ConfineError(f"generated code cannot be confined here: no child process ({error})") from error
    finally:
        os.close(write_end)
    return cell, report


def make_job(alarm: int, **parts: Any) -> dict[str, Any]:
    """Return a cell's job, the settings that `cell.py` reads: `parts` and those that all cells share.

    `alarm` is the cell's timeout in seconds; 0 means none.
    """
    shared = {"filter": build_filter(platform.machine()), "scratch_mb": SCRATCH_MB, "parent": os.getpid()}
    return {**shared, "alarm": alarm, **parts}


def pack_job(job: Mapping[str, Any]) -> bytes:
    """Encode a job for a cell's outer process: the length as 8 bytes, then the dict in marshal's format."""
    data = marshal.dumps(dict(job))
    return len(data).to_bytes(8, "big") + data


def stop_cell(cell: subprocess.Popen[bytes]) -> None:
    """Stop a cell and wait until all its processes have ended. The outer process stops the inner ones."""
    cell.terminate()
    try:
        cell.wait(timeout=10)
    except subprocess.TimeoutExpired:
        cell.kill()
        cell.wait()
    for pipe in (cell.stdin, cell.stdout, cell.stderr):
        if pipe:
            pipe.close()


def start_program(
    command: Sequence[str],
    readable: Sequence[tuple[str, str]],
    environment: Mapping[str, str],
    limits: Limits,
) -> subprocess.Popen[bytes]:
    """Start a program in a cell and return the cell, whose stdin and stdout (with stderr) are the program's.

    `readable` are (outside, inside) paths of the files and folders that the program can read. The cell ends with this
    process. Raises ConfineError if the program cannot be confined.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def attend() -> None:  # a cell ends with the thread that started it, so this thread waits for the cell's end
        try:
            cell = _start(command, readable, environment, limits)
        except BaseException as error:  # noqa: BLE001 raised in the waiting thread
            started.set_exception(error)
        else:
            started.set_result(cell)
            cell.wait()

    threading.Thread(target=attend, name="arena-cell", daemon=True).start()
    try:
        return started.result()
    except BaseException:  # interrupted while the cell starts
        started.add_done_callback(lambda done: None if done.exception() else stop_cell(done.result()))
        raise


def _start(
    command: Sequence[str], readable: Sequence[tuple[str, str]], environment: Mapping[str, str], limits: Limits
) -> subprocess.Popen[bytes]:
    folders = [pair for pair in readable if os.path.isdir(pair[0])]
    job = make_job(
        0, folders=folders, files=[pair for pair in readable if pair not in folders], hidden=[], texts={},
        command=list(command), environment=dict(environment), limits=dict(limits),
    )  # fmt: skip
    cell, report = start_cell(subprocess.PIPE, subprocess.STDOUT)
    problem = "it does not start"
    try:
        with os.fdopen(report, "rb") as reports:
            assert cell.stdin
            cell.stdin.write(pack_job(job))
            if select.select([reports], [], [], START_SECONDS)[0]:
                problem = reports.readline().decode().strip().removeprefix("error ") or problem
    except BrokenPipeError:
        pass
    except BaseException:
        stop_cell(cell)
        raise
    if problem != "started":
        stop_cell(cell)
        raise ConfineError(f"{os.path.basename(command[0])} cannot be confined here: {problem}; {suggest_remedy()}")
    return cell


def suggest_remedy() -> str:
    """Return advice to the user about the system setting that keeps cells from starting."""
    for setting, refusing, advice in (
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ):
        try:
            if Path("/proc/sys", setting).read_text().strip() == refusing:
                return f"set: {advice}"
        except OSError:
            continue
    return (
        "it needs Linux 5.14 or later with user namespaces; in a container: "
        "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    )
