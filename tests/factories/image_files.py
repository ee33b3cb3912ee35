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


def chunk(name: bytes, data: bytes) -> bytes:
    """A part of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def chunked(name: bytes, data: bytes, times: int) -> bytes:
    """A PNG with one chunk many times; a megabyte of such would be read for many seconds."""
    good, header = encoded(), 8 + 25
    return good[:header] + chunk(name, data) * times + good[header:]


def scanned(times: int = 60) -> bytes:
    """A progressive JPEG whose last scan is repeated; 8 MB of such would be decoded for hours."""
    good = encoded(kind="JPEG", progressive=True)
    return good[:-2] + good[good.rindex(b"\xff\xda") : -2] * times + good[-2:]


def commented(times: int = 1000) -> bytes:
    """A JPEG with many empty comments."""
    good = encoded(kind="JPEG")
    return good[:2] + b"\xff\xfe\x00\x02" * times + good[2:]


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises so many pixels, in a few bytes."""
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
    "gif as png": (shown(encoded(kind="GIF")), "its format is unknown (PNG, JPEG and WebP are)"),
    "bmp": (shown(encoded(kind="BMP")), "its format is unknown"),
    "jpeg as png": (shown(encoded(kind="JPEG")), "called image/png, and its bytes are image/jpeg"),
    "wide": (shown(bomb(100_000, 1)), "100000 x 1 pixels is too large"),
    "bomb": (shown(bomb(50_000, 50_000)), "cannot be read"),
    "big": (shown(bomb(12_000, 9_000)), "is too large"),
    "empty": (shown(b""), "its format is unknown"),
    "torn": (shown(encoded()[:20]), "cannot be read"),
    "turned": (shown(turned(), "image/jpeg"), "save it upright"),
    "animated": (shown(animated(), "image/webp"), "is animated"),
    "scans": (shown(scanned(), "image/jpeg"), "more than 40 scans"),
    "segments": (shown(commented(), "image/jpeg"), "more than 500 segments"),
    "chunks": (shown(chunked(b"tEXt", b"a\0", 30_000)), "more than 20,000 chunks"),
    "profiles": (shown(chunked(b"iCCP", b"a\0\0" + zlib.compress(b"x" * 900_000), 2)), "several colour profiles"),
    "heavy": (shown(b"\0" * (8 << 20) + b"\0"), "at most 8 MB"),
    "http": ({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}, "http: else is read"),
    "https": ({"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}, "https: else is read"),
    "file": ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "file: else is read"),
    "base64": ({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@"}}, "not in base64"),
    "no url": ({"type": "image_url", "image_url": {"url": 3}}, "as a data URL"),
    "nothing": ({"type": "image_url"}, "as a data URL"),
}
"""Parts that are refused, and words of the line that says why."""
