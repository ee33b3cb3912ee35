"""Check that failed matches leave no processes, files, threads or open files of this process behind."""

import contextlib
import ctypes
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

SET_CHILD_SUBREAPER = 36
"""Option of prctl. Orphaned descendants become children of this process, so none can escape the check."""
SECONDS = 20.0
"""Time within which the processes of a failed match must end."""
JAVA_DATA = Path("/tmp")
"""Folder where Java creates `hsperfdata_USER/PID`, whatever TMPDIR says."""


class Counts(NamedTuple):
    """Open files and threads of this process, and files in its temporary and working folder."""

    open_files: int
    threads: int
    files: int


class LeakCheck:
    """Check of one series of matches. Create it with `watch_leaks`, which gives the series a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.working_folders = {folder}
        """Folders in which processes ran, and could leave core dumps."""
        self._baseline = Counts(0, 0, 0)
        self.growth = Counts(0, 0, 0)
        """Differences to the baseline at the latest check."""

    def set_baseline(self) -> None:
        """Take the current counts as those that later checks compare with."""
        self._baseline = self._count()

    def find_leak(self, ended: Iterable[psutil.Process], root: psutil.Process) -> str:
        """Return what a failed match left behind, in one line, or "".

        `ended` are the processes of the failed match. Arena must have reaped `root`, which it had started; the others
        are reaped here. Two more open files and one more thread than in the baseline are allowed.
        """
        deadline = time.monotonic() + SECONDS
        while (alive := [process for process in ended if not has_ended(process)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        problems = [f"process {process.pid} still runs" for process in alive]
        names = {"core", *(f"core.{process.pid}" for process in ended)}
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if root.is_running():
            problems.append(f"process {root.pid} was not reaped")
        for process in ended:
            if process != root:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        files = [path for process in ended for path in JAVA_DATA.glob(f"hsperfdata_*/{process.pid}")]
        files += [path for folder in self.working_folders for path in folder.glob("core*") if path.name in names]
        for path in files:
            problems.append(f"{path} was not deleted")
            path.unlink()
        counts = self._count()
        self.growth = Counts(*(now - before for now, before in zip(counts, self._baseline, strict=True)))
        if self.growth.open_files > 2 or self.growth.threads > 1 or self.growth.files > 0:
            left = sorted(path.name for path in self.folder.iterdir())
            problems.append(f"open files, threads and files grew from {self._baseline} to {counts}: {left}")
            self._baseline = counts
        return "; ".join(problems)

    def _count(self) -> Counts:
        files = len([*self.folder.iterdir()])
        return Counts(psutil.Process().num_fds(), threading.active_count(), files)


@contextlib.contextmanager
def watch_leaks() -> Iterator[LeakCheck]:
    """Yield a check, and make an empty folder the temporary and working folder of this process and new ones.

    Core dumps are enabled, so that processes that could leave one do.
    """
    folder = Path(tempfile.mkdtemp(prefix="f"))  # a short path, as Chromium's sockets need
    core = resource.getrlimit(resource.RLIMIT_CORE)
    prctl = ctypes.CDLL(None).prctl
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("TMPDIR", str(folder))
        patch.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CORE, (core[1], core[1]))
        prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            yield LeakCheck(folder)
        finally:
            prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            resource.setrlimit(resource.RLIMIT_CORE, core)
            shutil.rmtree(folder, ignore_errors=True)


def list_descendants() -> set[psutil.Process]:
    """Return all running processes that this one started, and those that they started."""
    return {process for process in psutil.Process().children(recursive=True) if not has_ended(process)}


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if it was not reaped."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def find_new_session(known: Iterable[int]) -> psutil.Process | None:
    """Return a child of this process that leads a session and is not among the `known` ids, or None."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            for pid in map(int, path.read_text().split()):
                if pid not in known and os.getsid(pid) == pid:
                    return psutil.Process(pid)
    return None
