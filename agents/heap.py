"""Control of the C library's heap: keep freed memory for the next step, or return it to the system.

`import arena` configures glibc to keep freed memory of any size, so that the next learning step need not map it again.
"""

import ctypes
from contextlib import suppress

HOLES, LEAST = 0.25, 1 << 28
"""Thresholds of `trim_holes` for free heap memory: a share of the memory in use, and 256 MB."""


def trim_memory() -> None:
    """Return freed memory to the system now. Mapping it again makes the next step up to a third slower."""
    with suppress(OSError, AttributeError):  # other C libraries have other ways
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def trim_holes() -> None:
    """Return freed memory to the system if the heap has large holes.

    Buffers that grow from turn to turn do not fit into the holes left by their smaller versions.
    """
    with suppress(OSError, AttributeError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Heap
        heap = ask()
        if heap.fordblks > max(LEAST, HOLES * heap.uordblks):
            trim_memory()


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`: `uordblks` is the number of bytes in use, `fordblks` of free bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]
