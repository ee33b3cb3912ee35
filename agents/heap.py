"""Control of the C library's heap: return freed memory to the system when memory is scarce.

`import arena` configures glibc to keep freed memory of any size, so that the next learning step need not map it again.
"""

import ctypes
import re
from contextlib import suppress
from pathlib import Path

from agents.free_memory import free_memory

HOLES, LEAST = 0.25, 1 << 28
"""Free memory that `trim_holes` leaves: a share of what is in use, or 256 MB."""
STATUS = Path("/proc/self/status")


def trim_memory() -> None:
    """Return freed memory to the system now. Mapping it again makes the next step up to a third slower."""
    with suppress(OSError, AttributeError):  # other C libraries have other ways
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def trim_if_scarce() -> None:
    """Return freed memory to the system if memory is scarce."""
    if is_scarce():
        trim_memory()


def trim_holes() -> None:
    """Return freed memory to the system if memory is scarce and the heap has large holes.

    Buffers that grow from turn to turn do not fit into the holes left by their smaller versions.
    """
    if not is_scarce():
        return
    with suppress(OSError, AttributeError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Heap
        heap = ask()
        if heap.fordblks > max(LEAST, HOLES * heap.uordblks):
            trim_memory()


def is_scarce() -> bool:
    """Return True if less memory is free than this process's peak: it may then need its freed memory elsewhere."""
    return free_memory() < _peak()


def _peak() -> int:
    """Return the most bytes that this process has held at once; 0 if the system does not say."""
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s*(\d+) kB", STATUS.read_text(encoding="ascii", errors="replace"), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    return 0


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`: `uordblks` are the bytes in use, `fordblks` those that are free."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]
