"""Hostile picture files: each is refused in one line before it costs memory or runs anything."""

import hashlib
import io
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pixels
from PIL.JpegImagePlugin import MARKER

from games.contracts import Image
from games.picture_structure import _ALONE
from games.pictures import MAX_SIDE, check_picture, decode_picture
from tests.factories.image_files import make_jpeg_with_comments, make_jpeg_with_scans, make_png_with_chunks


def encode_picture(kind: str = "PNG", size: tuple[int, int] = (6, 4), **options: Any) -> bytes:
    file = io.BytesIO()
    Pixels.new("RGB", size, (200, 10, 10)).save(file, kind, **options)
    return file.getvalue()


def make_png(width: int, height: int) -> bytes:
    """Return a PNG whose header declares this size but which contains only a few bytes."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"\0" * 64)
    chunks = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (header, data))
    return b"\x89PNG\r\n\x1a\n" + chunks


def make_rotated_jpeg() -> bytes:
    exif = Pixels.Exif()
    exif[0x0112] = 6
    return encode_picture("JPEG", exif=exif)


def make_animation(kind: str) -> bytes:
    file = io.BytesIO()
    frames = [Pixels.new("RGB", (4, 4), (level, 0, 0)) for level in (0, 120, 250)]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    return file.getvalue()


HIDDEN = b"\xff\xf0\x00\x0a" + b"\xff\xfe\x00\x02" * 2
"""Comments inside a marker that Pillow does not treat as a segment."""
HOSTILE = {
    "bomb": (lambda: make_png(60_000, 60_000), "bomb|too large"),
    "long": (lambda: make_png(100_000, 1), "100000 x 1 pixels is too large"),
    "large": (lambda: make_png(MAX_SIDE + 1, 1), "too large"),
    "svg": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "format is unknown"),
    "eps": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "format is unknown"),
    "tiff": (lambda: encode_picture("TIFF"), "format is unknown"),
    "page": (lambda: b"<html></html>", "format is unknown"),
    "empty": (lambda: b"", "format is unknown"),
    "exif": (make_rotated_jpeg, "rotated by its EXIF data"),
    "gif": (lambda: encode_picture("GIF"), "format is unknown"),
    "bmp": (lambda: encode_picture("BMP"), "format is unknown"),
    "scans": (make_jpeg_with_scans, "more than 40 scans"),
    "segments": (make_jpeg_with_comments, "more than 500 segments"),
    "stray": (
        lambda: (good := encode_picture("JPEG"))[:2] + bytes(1000) + good[2:],
        "more than 500 segments or stray bytes",
    ),
    "hidden": (lambda: (good := encode_picture("JPEG"))[:2] + HIDDEN * 300 + good[2:], "more than 500 segments"),
    "chunks": (lambda: make_png_with_chunks(b"tEXt", b"a\0", 30_000), "more than 20,000 chunks"),
    "profiles": (
        lambda: make_png_with_chunks(b"iCCP", b"a\0\0" + zlib.compress(b"x" * 9999), 2),
        "several colour profiles",
    ),
    "apng": (lambda: make_animation("PNG"), "animated"),
    "webp": (lambda: make_animation("WEBP"), "animated"),
    "torn": (lambda: encode_picture(size=(300, 300))[:-60], "cannot be read"),
}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", HOSTILE)
def test_refuses_hostile_file_in_one_line(name: str) -> None:
    make, reason = HOSTILE[name]
    with pytest.raises(ValueError, match=reason) as error:
        decode_picture(make())
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_reads_common_formats(kind: str) -> None:
    assert decode_picture(encode_picture(kind)).size == (6, 4)
    data = encode_picture(kind)
    check_picture(Image(hashlib.sha256(data).hexdigest(), f"image/{kind.lower()}", 6, 4), data)


def test_refuses_file_of_other_type_or_size() -> None:
    data = encode_picture()
    name = hashlib.sha256(data).hexdigest()
    with pytest.raises(ValueError, match=f"image {name}: the file is image/png, not image/jpeg"):
        check_picture(Image(name, "image/jpeg", 6, 4), data)
    with pytest.raises(ValueError, match="the file has 6 x 4 pixels, not 4 x 6"):
        check_picture(Image(name, "image/png", 4, 6), data)
    with pytest.raises(ValueError, match=f"image {name}: the image cannot be read"):
        check_picture(Image(name, "image/png", 4, 6), b"https://example.org/a.png")


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 70), st.binary(min_size=1, max_size=4), st.sampled_from(["PNG", "JPEG", "WEBP"]))
def test_any_damage_gives_a_picture_or_one_line(offset: int, change: bytes, kind: str) -> None:
    data = bytearray(encode_picture(kind))
    data[offset : offset + len(change)] = change
    try:
        assert max(decode_picture(bytes(data)).size) <= MAX_SIDE
    except ValueError as error:
        assert "\n" not in str(error)


def test_segments_without_data_match_pillow() -> None:
    assert {marker & 0xFF for marker, (_, _, read) in MARKER.items() if read is None} == _ALONE


@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"icc_profile": bytes(200_000)}, {"comment": b"x" * 60_000}]
)
def test_reads_common_jpeg_variants(options: dict[str, Any]) -> None:
    assert decode_picture(encode_picture("JPEG", (300, 200), **options)).size == (300, 200)
