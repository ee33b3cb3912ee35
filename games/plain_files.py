"""Files that somebody names: regular ones of a bounded size, never a pipe or a device, which would be read for ever."""

import errno
import os
import stat
from typing import BinaryIO


def open_plain(path: str | os.PathLike[str], most: int) -> BinaryIO:
    """Open a regular file of at most so many bytes; OSError, with its text, for what is none or larger."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENODEV, "it is no regular file")
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most // 10**6:,} MB")
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_plain(path: str | os.PathLike[str], most: int) -> bytes:
    """All of a regular file of at most so many bytes; OSError, with its text, for what is none or larger."""
    with open_plain(path, most) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // 10**6:,} MB")
    return data
