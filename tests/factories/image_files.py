"""Encoded images, good and hostile, and the parts of messages that show them."""

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image as Pixels


def encoded(seed: int = 0, kind: str = "PNG", size: tuple[int, int] = (48, 32), **more: Any) -> bytes:
    """A picture of noise, encoded."""
    levels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Pixels.fromarray(levels).save(file, kind, **more)
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises so many pixels, in a few bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * 100)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def turned() -> bytes:
    """A JPEG that Exif asks viewers to turn."""
    exif = Pixels.Exif()
    exif[0x0112] = 6
    return encoded(kind="JPEG", exif=exif)


def animated() -> bytes:
    """A WebP of two frames."""
    frames = [Pixels.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], duration=100)
    return file.getvalue()


def url_of(data: bytes, media: str = "image/png") -> str:
    """A data URL."""
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def shown(data: bytes, media: str = "image/png") -> dict[str, Any]:
    """An image as a part of a chat's message."""
    return {"type": "image_url", "image_url": {"url": url_of(data, media)}}


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
REFUSED: dict[str, tuple[Any, str]] = {
    "svg": (shown(SVG, "image/svg+xml"), "not image/svg"),
    "svg as png": (shown(SVG), "its format is unknown"),
    "gif": (shown(encoded(kind="GIF"), "image/gif"), "not image/gif"),
    "gif as png": (shown(encoded(kind="GIF")), "not image/gif"),
    "bmp": (shown(encoded(kind="BMP")), "not image/bmp"),
    "jpeg as png": (shown(encoded(kind="JPEG")), "called image/png, and its bytes are image/jpeg"),
    "wide": (shown(bomb(100_000, 1)), "100000 x 1 pixels is too large"),
    "bomb": (shown(bomb(50_000, 50_000)), "cannot be read"),
    "big": (shown(bomb(12_000, 9_000)), "is too large"),
    "empty": (shown(b""), "its format is unknown"),
    "torn": (shown(encoded()[:20]), "cannot be read"),
    "turned": (shown(turned(), "image/jpeg"), "save it upright"),
    "animated": (shown(animated(), "image/webp"), "is animated"),
    "heavy": (shown(b"\0" * (8 << 20) + b"\0"), "at most 8 MB"),
    "http": ({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}, "http: else is read"),
    "https": ({"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}, "https: else is read"),
    "file": ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "file: else is read"),
    "base64": ({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@"}}, "not in base64"),
    "no url": ({"type": "image_url", "image_url": {"url": 3}}, "as a data URL"),
    "nothing": ({"type": "image_url"}, "as a data URL"),
}
"""Parts that are refused, and words of the line that says why."""
