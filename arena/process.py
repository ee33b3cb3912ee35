"""Process settings made before torch loads: how threads wait for each other, that freed memory is kept, quiet logs.

Called by `import arena`, so that nobody has to set it; what the user's environment says comes first. Nothing of it
changes a number that is computed. `agents.heap` returns freed memory to the system.
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

from agents.cgroups import processor_quota

_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
LAUNCHERS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE")
"""Variables by which launchers say how many processes they started; not SLURM_NTASKS, which batch scripts have, too."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_PR_SET_PDEATHSIG = 1


def prepare() -> None:
    """Set the environment variables and allocator options that the user has not set."""
    if not any(name in os.environ for name in _WAITING):
        # GNU's threads spin 300,000 times at every barrier: beside one busy process that made everything ten times as
        # slow. After so many rounds, some microseconds, they sleep.
        os.environ["GOMP_SPINCOUNT"] = "1000"
    # Torch's large buffers in pages of 2 MB where the kernel has them: fewer page faults when memory is allocated
    # again.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Of its products oneDNN keeps those of 1,024 shapes, half a megabyte each, and batches hardly repeat a shape.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    # DeepSpeed, which accelerate imports when weights are saved, writes to stdout that it found no accelerator.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    if sys.platform == "linux":
        _keep_buffers()


def waiting() -> str:
    """Return the settings by which OpenMP's threads wait in this process."""
    return ", ".join(f"{name}={os.environ[name]}" for name in _WAITING if name in os.environ)


def ranks() -> tuple[str, int]:
    """Return how many processes a launcher started as one job, this one among them, and the variable that says so."""
    for name in LAUNCHERS:
        told = os.environ.get(name, "").strip()
        if told.isdecimal() and len(told) < 10 and int(told) > 1:
            return name, int(told)
    return "", 1


@contextmanager
def loading() -> Iterator[None]:
    """Speed up imports inside the block by a fifth: what a library defines stays, so there is nothing to collect.

    Afterwards the collector passes over all that is there by now, 300,000 objects of torch and transformers.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def command_line(words: Sequence[str]) -> list[str]:
    """Return what starts `arena` as a child process, which imports nothing from the working directory.

    A `json.py` there, out of somebody's archive, is no code that anyone named.
    """
    return [sys.executable, "-P", "-m", "arena", *words]


def environment_of_children() -> dict[str, str]:
    """Return this process's environment, by which children find Arena where the working directory is its checkout."""
    home, paths = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")
    if home != os.path.realpath(os.curdir):
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([home, paths] if paths else [home])}


def cores() -> int:
    """Return the number of cores that this process may use: of a quota the whole ones, at least one, as Ray counts."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota()
    return here if quota is None else max(1, min(here, int(quota)))


def end_with(parent: int) -> None:
    """Have the kernel send this process, just forked, SIGTERM when its parent ends, for whatever reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)


def _keep_buffers() -> None:
    """Have glibc keep freed memory, however large, for the next step instead of returning and zeroing it again."""
    with suppress(OSError, AttributeError):  # other C libraries have other ways
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 2**31 - 1)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_ARENA_MAX, 1)  # other threads' own heaps end at 64 MB: what computes would map all tensors again
