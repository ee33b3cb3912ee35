"""Control of the C library's heap: keep freed memory for the next step, or return it to the system.

`import arena` configures glibc to keep freed memory of any size, because mapping memory again slows the next step.
"""

import ctypes
from contextlib import suppress

GROWTH_FACTOR, EXTRA_BYTES = 1.5, 1 << 30
"""`trim_holes` lets the heap grow to this multiple of its largest use so far, plus this many bytes.

With these, two iterations of the flagship recipe trim nothing and take 1.03 times the CPU time of learning without
trimming. With 1.3 and 256 MB learning took 1.21 times, and the peak was 3.70 instead of 3.95 GB (measured at commit
9e4186ec by `benchmarks/learn_in_run.py`, since removed).
"""

_largest_use = 0


def trim_memory() -> None:
    """Return freed heap memory to the system now (glibc only). Mapping it again slows the next step by up to 1/3."""
    with suppress(OSError, AttributeError):  # other C libraries lack this function
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def record_use() -> int:
    """Update the largest heap use, for `trim_holes`; return the heap's size in bytes (0 without glibc).

    Call it when use is at a peak.
    """
    global _largest_use
    with suppress(OSError, AttributeError):
        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = _Heap
        heap = mallinfo()
        _largest_use = max(_largest_use, heap.uordblks)
        return int(heap.arena)
    return 0


def trim_holes() -> None:
    """Return freed memory to the system if the heap has grown well beyond the largest use recorded so far.

    Buffers that grow from turn to turn do not fit into the holes left by their smaller versions. Up to the limit the
    holes stay, because the next learning step fills them.
    """
    if record_use() > GROWTH_FACTOR * _largest_use + EXTRA_BYTES:
        trim_memory()


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`: `arena` is the heap's size, `uordblks` the bytes of it that are in use."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]
