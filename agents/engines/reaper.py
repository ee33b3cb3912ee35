"""A small process that waits for its owner's end and then kills what the owner had started.

A killed process cannot end its children, and vLLM's live on, holding its memory. All who inherited `MARK` from the
owner are found by their environment, also those that were just starting, and so are the children of theirs that have
another environment, as Ray's agents do; the folder that it names is removed. Linux.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "ARENA_REAPED_WITH"
"""In the environment of all who are to end with the owner: a folder of the owner's own, then those of its owners."""


def watch(folder: Path) -> "subprocess.Popen[bytes]":
    """Start one for this process, before whatever is to end with it; terminate it when that has ended by itself."""
    command = [sys.executable, "-I", str(Path(__file__)), str(os.getpid()), str(folder)]
    quiet = subprocess.DEVNULL
    # a session of its own: Ctrl-C is for the owner
    started = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    os.environ[MARK] = os.pathsep.join(filter(None, [str(folder), os.environ.get(MARK)]))
    return started


def reap(folder: str) -> None:
    """SIGKILL for all marked with the folder and their descendants, until there is none; the folder goes."""
    while marked := _marked(folder):
        for pid in marked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def _marked(folder: str) -> set[int]:
    mark, wanted = f"{MARK}=".encode(), folder.encode()
    parents, found = dict[int, int](), set[int]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
            # Python's own tracker ends by itself once the others have, and clears away what they shared
            tracker = b"multiprocessing.resource_tracker" in place.joinpath("cmdline").read_bytes()
            if state == "Z" or tracker:
                continue
            parents[int(place.name)] = int(parent)
            environ = place.joinpath("environ").read_bytes().split(b"\0")
            marks = next((entry.removeprefix(mark) for entry in environ if entry.startswith(mark)), b"")
            if wanted in marks.split(os.pathsep.encode()):
                found.add(int(place.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _wait_for(owner: int) -> None:
    """Return when that process has ended."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(owner)
        select.select([handle], [], [])


if __name__ == "__main__":
    _wait_for(int(sys.argv[1]))
    reap(sys.argv[2])
