"""What this process is told before torch loads: how threads wait for each other, and to keep memory it was given.

Called by `import arena`, so that nobody has to set it; what the user's environment says comes first.
"""

import ctypes
import os
import sys
from contextlib import suppress

SETTINGS = {
    # libgomp's threads spin at barriers, for as long as it takes: beside one busy process play was ten times slower.
    # After so many rounds they sleep (tests/benchmarks/results/threads.json).
    "GOMP_SPINCOUNT": "1000",
    # Large buffers in pages of 2 MB: memory that is new costs hundreds of times fewer page faults.
    "THP_MEM_ALLOC_ENABLE": "1",
}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def prepare() -> None:
    """Set what is not set yet; nothing of it changes a number that is computed."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if sys.platform == "linux":
        _keep_buffers()


def _keep_buffers() -> None:
    """Have glibc keep freed buffers of any size instead of giving them back to be zeroed anew at every step."""
    with suppress(OSError, AttributeError):  # another C library has its own ways
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 2**31 - 1)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
