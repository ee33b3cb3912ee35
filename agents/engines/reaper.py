"""Manage the processes of vLLM and Ray: kill them when their owner ends, and redirect their stderr.

A killed process cannot end its children, and vLLM's survive with its memory. Processes that inherited `MARK` are found
by their environment, including those that are just starting. Ray's agents have another environment and are found by
their open files in the marked folder. The folder is removed. Linux only.
"""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "ARENA_REAPED_WITH"
"""Environment variable of processes that must end with the owner: the owner's folder, then those of its own owners."""


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Append the stderr of this process, and of processes that it starts within the context, to a file."""
    saved, descriptor = os.dup(2), os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)


def watch(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a watchdog that, when this process ends, kills all processes marked with `folder` and removes the folder.

    Marks this process's environment, which processes started later inherit. Terminate the returned watchdog once they
    have ended normally.
    """
    command = [sys.executable, "-I", str(Path(__file__)), str(os.getpid()), str(folder)]
    quiet = subprocess.DEVNULL
    # in a new session, so that Ctrl-C does not reach it
    watchdog = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    os.environ[MARK] = os.pathsep.join(filter(None, [str(folder), os.environ.get(MARK)]))
    return watchdog


def reap(folder: str) -> None:
    """Kill all other processes that carry the folder's mark or write in it; remove the folder once none is left."""
    while pids := [*_find_processes(folder)]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def _find_processes(folder: str) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) == os.getpid():  # an owner that ends by itself may still have its logs there
                continue
            alive = process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
            # Python's resource tracker frees what the other processes shared, and ends after them
            tracker = b"multiprocessing.resource_tracker" in process.joinpath("cmdline").read_bytes()
            if alive and not tracker and (_is_marked(process, folder.encode()) or _has_open_file(process, folder)):
                yield int(process.name)


def _is_marked(process: Path, folder: bytes) -> bool:
    mark, environ = f"{MARK}=".encode(), process.joinpath("environ").read_bytes().split(b"\0")
    marks = next((entry.removeprefix(mark) for entry in environ if entry.startswith(mark)), b"")
    return folder in marks.split(os.pathsep.encode())


def _has_open_file(process: Path, folder: str) -> bool:
    """Return True if a process, given by its folder in /proc, has a file below `folder` open for writing."""
    for link in process.joinpath("fd").iterdir():
        with suppress(OSError):
            if link.lstat().st_mode & stat.S_IWUSR and os.readlink(link).startswith(f"{folder}/"):
                return True
    return False


def _wait_for(owner: int) -> None:
    """Wait until the process with this id has ended."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(owner)
        select.select([handle], [], [])


if __name__ == "__main__":
    _wait_for(int(sys.argv[1]))
    reap(sys.argv[2])
