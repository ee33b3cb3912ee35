"""Settings of this process and its children: waiting of threads, memory allocation, logs, environment, cores.

`import arena` calls `prepare` before torch is loaded. Environment variables set by the user take precedence. No setting
changes any computed number. `agents.heap` returns freed memory to the system.
"""

import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agents.cgroups import find_processor_quota

_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Variables that say how OpenMP threads wait."""
LAUNCHERS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE")
"""Variables in which launchers give the number of processes. SLURM_NTASKS is excluded, because batch scripts also have
it."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_PR_SET_PDEATHSIG = 1


def prepare() -> None:
    """Set environment variables that are not set, options of the allocator, and a filter on DeepSpeed's log."""
    if not any(name in os.environ for name in _WAITING):
        # By default, threads of GNU's OpenMP spin 300,000 times at every barrier, which makes everything ten times
        # slower if another process is busy. With 1000 spins they sleep after some microseconds.
        os.environ["GOMP_SPINCOUNT"] = "1000"
    # Pages of 2 MB for torch's large buffers, if the kernel supports them, to have fewer page faults.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # By default oneDNN caches 1,024 compiled products, half a megabyte each, but batches hardly ever repeat a shape.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    # DeepSpeed, which accelerate imports when weights are saved, prints to stdout that it found no accelerator.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    if sys.platform == "linux":
        _keep_buffers()


def describe_waiting() -> str:
    """Describe how OpenMP threads wait by the environment variables that are set, such as `GOMP_SPINCOUNT=1000`."""
    return ", ".join(f"{name}={os.environ[name]}" for name in _WAITING if name in os.environ)


def find_launched_ranks() -> tuple[str, int]:
    """Return the variable and the number of processes of a launcher that started several; ("", 1) if none did."""
    for name in LAUNCHERS:
        count = os.environ.get(name, "").strip()
        if count.isdecimal() and len(count) < 10 and int(count) > 1:
            return name, int(count)
    return "", 1


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection within the context. It makes imports a fifth faster, as imported objects stay alive.

    Afterwards, all existing objects, such as 300,000 of torch and transformers, are exempt from collection.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def build_child_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that starts `arena` as a child process, without imports from the working directory.

    Otherwise a `json.py` there, such as from an extracted archive, would be run.
    """
    return [sys.executable, "-P", "-m", "arena", *arguments]


def build_child_environment() -> dict[str, str]:
    """Return the environment for child processes, with Arena in PYTHONPATH if the working directory is its checkout."""
    home, paths = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")
    if home != os.path.realpath(os.curdir):
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([home, paths] if paths else [home])}


def count_cores() -> int:
    """Return the number of cores that this process may use. A quota is rounded down to at least one, as in Ray."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = find_processor_quota()
    return available if quota is None else max(1, min(available, int(quota)))


def end_with_parent(parent: int) -> None:
    """Make the kernel send SIGTERM to this newly forked process when its parent ends. Does nothing outside Linux.

    Exits at once if the parent, whose process id is `parent`, has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)


def _keep_buffers() -> None:
    """Make glibc keep freed memory of any size for reuse, instead of returning it to the system."""
    with suppress(OSError, AttributeError):  # other C libraries have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 2**31 - 1)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        # separate heaps of other threads are limited to 64 MB, so the computing thread would map all tensors anew
        mallopt(_M_ARENA_MAX, 1)
