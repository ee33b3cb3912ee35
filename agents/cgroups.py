"""Memory and processors that this process can use, within the machine and its Linux control groups (v1 and v2)."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT, OWN, MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/meminfo")


def measure_free_memory() -> int:
    """Return how many bytes this process can still allocate on this machine, in its control groups; 0 if unknown."""
    free = [max(0, limit - used) for limit, used in find_memory_limits()]
    machine = read_meminfo("MemAvailable")
    return min([machine, *free] if machine else free, default=0)


def read_meminfo(name: str) -> int:
    """Return a value of /proc/meminfo, such as `MemAvailable`, in bytes; 0 if it is missing or unreadable."""
    try:
        lines = MEMINFO.read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def find_memory_limits() -> list[tuple[int, int]]:
    """Return (limit, use) in bytes for each enclosing control group that has a memory limit, innermost first.

    Use excludes file pages that were not read lately, because the kernel drops them before it refuses memory.
    """
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
    found = []
    for folder, version in _find_groups("memory"):
        limit, used = (_read_number(folder / name) for name in names[version])
        if limit:
            idle = re.search(r"^(?:total_)?inactive_file (\d+)$", _read_text(folder / "memory.stat"), re.MULTILINE)
            found.append((limit, max(0, (used or 0) - (int(idle[1]) if idle else 0))))
    return found


def find_processor_quota() -> float | None:
    """Return the lowest CPU quota of the enclosing control groups, in processors; None if there is no quota."""
    found = [quota for folder, version in _find_groups("cpu") if (quota := _read_quota(folder, version))]
    return min(found, default=None)


def _read_quota(folder: Path, version: int) -> float | None:
    """Return a control group's CPU quota in processors (CPU time per period / period); None without a quota."""
    if version == 1:
        quota, period = (
            _read_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")
        )  # a quota of -1 means no limit
    else:
        words = _read_text(folder / "cpu.max").split()
        quota, period = map(_parse_integer, words) if len(words) == 2 else (None, None)
    return quota / period if quota and period and 0 < quota < 2**63 and 0 < period < 2**63 else None


def _find_groups(controller: str) -> Iterator[tuple[Path, int]]:
    """Yield (folder, cgroup version 1 or 2) of this process's control groups for a controller, innermost first."""
    for line in _read_text(OWN).splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = ROOT / controller if controllers else ROOT
        inner = root / path.strip("/")
        # in a container its own group is mounted at the root, but the path is the host's: try both
        for folder in dict.fromkeys([inner, *(p for p in inner.parents if p.is_relative_to(root)), root]):
            yield folder, 1 if controllers else 2


def _read_number(file: Path) -> int | None:
    return _parse_integer(_read_text(file))


def _parse_integer(text: str) -> int | None:
    """Return the text as an integer; None for any other text, such as `max`."""
    try:
        return int(text)
    except ValueError:
        return None


def _read_text(file: Path) -> str:
    """Return a file's text; "" if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
