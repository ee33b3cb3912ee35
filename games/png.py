"""PNG files whose bytes depend on the pixels alone, and whose length depends on the size alone.

Rows are stored without compression, in blocks written here, so that no version of zlib can change a file's hash.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from games.contracts import Image

Pixels = NDArray[np.uint8]
"""RGB levels [height, width, 3]."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
BLOCK = 65535
"""Maximum bytes of a stored deflate block."""


class Album:
    """Pictures of a match or a lesson, by hash."""

    def __init__(self) -> None:
        self.pictures: dict[str, bytes] = {}

    def add(self, pixels: Pixels) -> Image:
        """Store RGB pixels as a PNG file, and return the image part of a message that refers to it."""
        data = encode(pixels)
        image = Image(hashlib.sha256(data).hexdigest(), "image/png", pixels.shape[1], pixels.shape[0])
        self.pictures[image.hash] = data
        return image


def encode(pixels: Pixels) -> bytes:
    """Return RGB pixels as a PNG file. Raises ValueError for another shape or type."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"pixels are uint8 [height, width, 3], not {pixels.dtype} {list(pixels.shape)}")
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with a 0, which means no filter
    rows[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", _to_zlib(rows.tobytes())), (b"IEND", b""))
    return SIGNATURE + b"".join(_make_chunk(kind, data) for kind, data in chunks)


def _make_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _to_zlib(data: bytes) -> bytes:
    """Return data as a zlib stream of stored blocks."""
    return b"\x78\x01" + b"".join(_split_blocks(data)) + struct.pack(">I", zlib.adler32(data))


def _split_blocks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK]
        is_last = start + BLOCK >= len(data)
        yield struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF) + block
