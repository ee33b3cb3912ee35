"""Send to a file what libraries write to stderr behind Python's back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Send what this process, and those that it starts, write to stderr to a file."""
    kept, opened = os.dup(2), os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(opened, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(opened)
