"""Settings of this process and its children: thread waiting, memory allocation, quiet logs, environment, cores.

`import arena` calls `prepare` before torch loads. The user's environment variables take precedence. No setting changes
a computed number. `agents.heap` returns freed memory to the system.
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
LAUNCHERS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE")
"""Variables in which launchers give the number of processes. SLURM_NTASKS is excluded: batch scripts have it too."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_PR_SET_PDEATHSIG = 1


def prepare() -> None:
    """Set the environment variables that the user has not set, allocator options, and a filter of DeepSpeed's log."""
    if not any(name in os.environ for name in _WAITING):
        # GNU's OpenMP threads spin 300,000 times at every barrier, which makes everything ten times slower if another
        # process is busy. With 1000 spins they sleep after some microseconds.
        os.environ["GOMP_SPINCOUNT"] = "1000"
    # Pages of 2 MB for torch's large buffers, if the kernel has them: fewer page faults on reallocation.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # By default oneDNN caches products for 1,024 shapes, half a megabyte each, but batches hardly repeat a shape.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    # DeepSpeed, which accelerate imports when weights are saved, prints to stdout that it found no accelerator.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    if sys.platform == "linux":
        _keep_buffers()


def describe_waiting() -> str:
    """Return the environment settings for how OpenMP threads wait, such as `GOMP_SPINCOUNT=1000`, as text."""
    return ", ".join(f"{name}={os.environ[name]}" for name in _WAITING if name in os.environ)


def find_launched_ranks() -> tuple[str, int]:
    """Return the launcher's variable and the number of processes in its job if several; ("", 1) without a launcher."""
    for name in LAUNCHERS:
        count = os.environ.get(name, "").strip()
        if count.isdecimal() and len(count) < 10 and int(count) > 1:
            return name, int(count)
    return "", 1


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during imports, which makes them a fifth faster, since imported objects stay alive.

    Afterwards all existing objects, such as 300,000 of torch and transformers, are exempt from collection.
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
    """Return the command that starts `arena` as a child process without imports from the working directory.

    Otherwise a `json.py` in an extracted archive would be run.
    """
    return [sys.executable, "-P", "-m", "arena", *arguments]


def build_child_environment() -> dict[str, str]:
    """Return the environment for child processes, with Arena in PYTHONPATH if the current folder is its checkout."""
    home, paths = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")
    if home != os.path.realpath(os.curdir):
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([home, paths] if paths else [home])}


def count_cores() -> int:
    """Return the number of cores that this process may use. A quota is rounded down, to at least one, as Ray does."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = find_processor_quota()
    return available if quota is None else max(1, min(available, int(quota)))


def end_with_parent(parent: int) -> None:
    """Make the kernel send SIGTERM to this just forked process when its parent ends. Linux only.

    Exits at once if the process with the id `parent` has ended already.
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
        # other threads' heaps end at 64 MB, so the computing thread would map all tensors again
        mallopt(_M_ARENA_MAX, 1)
