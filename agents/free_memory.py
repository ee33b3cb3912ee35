"""Memory that this process can still take: of the machine, and of the control groups around it."""

from pathlib import Path

from agents.cgroups import memory_limits

MEMINFO = Path("/proc/meminfo")


def free_memory() -> int:
    """Return the bytes that this process can still take; 0 if the system does not say."""
    left = [max(0, limit - used) for limit, used in memory_limits()]
    machine = meminfo("MemAvailable")
    return min([machine, *left] if machine else left, default=0)


def meminfo(name: str) -> int:
    """Return one of the kernel's figures in bytes; 0 if there is none."""
    try:
        lines = MEMINFO.read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
