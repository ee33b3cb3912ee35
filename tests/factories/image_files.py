"""Encoded images, good and hostile, and the parts of messages that show them."""

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image as Pixels


def encode_noise(seed: int = 0, kind: str = "PNG", size: tuple[int, int] = (48, 32), **more: Any) -> bytes:
    """Return an encoded picture of noise."""
    levels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Pixels.fromarray(levels).save(file, kind, **more)
    return file.getvalue()


def encode_chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def make_png_with_chunks(name: bytes, data: bytes, times: int) -> bytes:
    """Return a PNG that repeats one chunk; a megabyte of them takes many seconds to read."""
    png, header = encode_noise(), 8 + 25
    return png[:header] + encode_chunk(name, data) * times + png[header:]


def make_jpeg_with_scans(times: int = 60) -> bytes:
    """Return a progressive JPEG whose last scan is repeated; 8 MB of them take hours to decode."""
    jpeg = encode_noise(kind="JPEG", progressive=True)
    return jpeg[:-2] + jpeg[jpeg.rindex(b"\xff\xda") : -2] * times + jpeg[-2:]


def make_jpeg_with_comments(times: int = 1000) -> bytes:
    """Return a JPEG with many empty comments."""
    jpeg = encode_noise(kind="JPEG")
    return jpeg[:2] + b"\xff\xfe\x00\x02" * times + jpeg[2:]


def make_bomb(width: int, height: int) -> bytes:
    """Return a PNG of a few bytes whose header states this size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * 100)
    return (
        b"\x89PNG\r\n\x1a\n" + encode_chunk(b"IHDR", header) + encode_chunk(b"IDAT", body) + encode_chunk(b"IEND", b"")
    )


def make_rotated_jpeg() -> bytes:
    """Return a JPEG with an Exif rotation."""
    exif = Pixels.Exif()
    exif[0x0112] = 6
    return encode_noise(kind="JPEG", exif=exif)


def make_animation() -> bytes:
    """Return a WebP of two frames."""
    frames = [Pixels.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], duration=100)
    return file.getvalue()


def make_data_url(data: bytes, media: str = "image/png") -> str:
    """Return the data URL of a file."""
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def make_image_part(data: bytes, media: str = "image/png") -> dict[str, Any]:
    """Return an image as a part of a chat message."""
    return {"type": "image_url", "image_url": {"url": make_data_url(data, media)}}


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
REFUSED: dict[str, tuple[Any, str]] = {
    "svg": (make_image_part(SVG, "image/svg+xml"), "not image/svg"),
    "svg as png": (make_image_part(SVG), "its format is unknown"),
    "gif": (make_image_part(encode_noise(kind="GIF"), "image/gif"), "not image/gif"),
    "gif as png": (make_image_part(encode_noise(kind="GIF")), "its format is unknown (PNG, JPEG and WebP are)"),
    "bmp": (make_image_part(encode_noise(kind="BMP")), "its format is unknown"),
    "jpeg as png": (make_image_part(encode_noise(kind="JPEG")), "declared as image/png, but its bytes are image/jpeg"),
    "wide": (make_image_part(make_bomb(100_000, 1)), "100000 x 1 pixels is too large"),
    "bomb": (make_image_part(make_bomb(50_000, 50_000)), "cannot be read"),
    "big": (make_image_part(make_bomb(12_000, 9_000)), "is too large"),
    "empty": (make_image_part(b""), "its format is unknown"),
    "torn": (make_image_part(encode_noise()[:20]), "cannot be read"),
    "turned": (make_image_part(make_rotated_jpeg(), "image/jpeg"), "save it upright"),
    "animated": (make_image_part(make_animation(), "image/webp"), "is animated"),
    "scans": (make_image_part(make_jpeg_with_scans(), "image/jpeg"), "more than 40 scans"),
    "segments": (make_image_part(make_jpeg_with_comments(), "image/jpeg"), "more than 500 segments"),
    "chunks": (make_image_part(make_png_with_chunks(b"tEXt", b"a\0", 30_000)), "more than 20,000 chunks"),
    "profiles": (
        make_image_part(make_png_with_chunks(b"iCCP", b"a\0\0" + zlib.compress(b"x" * 900_000), 2)),
        "several colour profiles",
    ),
    "heavy": (make_image_part(b"\0" * (8 << 20) + b"\0"), "at most 8 MB"),
    "http": ({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}, "not http:"),
    "https": ({"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}, "not https:"),
    "file": ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "not file:"),
    "base64": ({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@"}}, "not in base64"),
    "no url": ({"type": "image_url", "image_url": {"url": 3}}, "as a data URL"),
    "nothing": ({"type": "image_url"}, "as a data URL"),
}
"""Message parts that are refused, each with a piece of the error message."""
