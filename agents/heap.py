"""The C library's heap: what is freed stays in it for what comes, until it is given back.

`import arena` has glibc keep freed memory, however large, so that a learning step need not have it mapped again.
"""

import ctypes
from contextlib import suppress

HOLES, LEAST = 0.25, 1 << 28
"""Free memory that `trim_holes` leaves: a share of what is in use, or 256 MB."""


def trim_memory() -> None:
    """Return freed memory to the system instead of keeping it for the next step: slower, but a lower peak."""
    with suppress(OSError, AttributeError):  # other C libraries have other ways
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def trim_holes() -> None:
    """Do so once much is free: what grows from turn to turn finds no room where it lay when it was smaller."""
    with suppress(OSError, AttributeError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Heap
        heap = ask()
        if heap.fordblks > max(LEAST, HOLES * heap.uordblks):
            trim_memory()


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`: `uordblks` are the bytes in use, `fordblks` those that are free."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]
