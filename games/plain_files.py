"""Safe reading of files named by users: only regular files of bounded size. A pipe or device could block forever."""

import errno
import os
import stat
import sys
from io import BufferedReader

UNLIMITED = sys.maxsize


def open_plain(path: str | os.PathLike[str], max_bytes: int = UNLIMITED, follow_links: bool = True) -> BufferedReader:
    """Open a regular file of at most `max_bytes` for reading. Raises OSError, with a reason, for anything else.

    With `follow_links=False`, a symbolic link raises OSError, too.
    """
    link = 0 if follow_links else os.O_NOFOLLOW
    # Not blocking, or opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | link)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ENODEV, "it is no regular file")
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {max_bytes // 10**6:,} MB")
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_plain(path: str | os.PathLike[str], max_bytes: int = UNLIMITED) -> bytes:
    """Return the content of a regular file of at most `max_bytes`. Raises OSError, with a reason, for anything else."""
    with open_plain(path, max_bytes) as file:
        data = file.read(max_bytes + 1 if max_bytes < UNLIMITED else -1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes // 10**6:,} MB")
    return data
