"""Read picture files of games, data sets and tools. Their bytes are untrusted."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from games.contracts import Image
from games.picture_structure import check_structure

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

FORMATS = ("PNG", "JPEG", "WEBP")
"""Accepted file formats, by Pillow's names. Others may start programs (EPS), have no size (SVG), or take minutes for a
small file (GIF with many comments)."""
MAX_SIDE = 4096
"""Maximum width and height of an image, in pixels."""
MAX_BYTES = 64 << 20
_FILTERING = Lock()
"""Lock on Python's warning filters, which all threads share."""
_ORIENTATION = 0x0112
"""EXIF tag of an image's orientation; 1 is upright."""


def check_picture(image: Image, data: bytes) -> None:
    """Raise ValueError, with the image's hash, unless the file has the image's media type, width and height.

    Reads only the file's header.
    """
    try:
        media, size = read_header(data)
    except ValueError as error:
        raise ValueError(f"image {image.hash}: {error}") from None
    if media != image.media:
        raise ValueError(f"image {image.hash}: the file is {media}, not {image.media}")
    if size != (image.width, image.height):
        shown = f"{image.width} x {image.height}"
        raise ValueError(f"image {image.hash}: the file has {size[0]} x {size[1]} pixels, not {shown}")


def read_header(data: bytes) -> tuple[str, tuple[int, int]]:
    """Return a file's media type, and its width and height. Raises ValueError as `decode_picture` does."""
    with _open_picture(data) as found:
        return f"image/{(found.format or '').lower()}", found.size


def decode_picture(data: bytes) -> "Pixels":
    """Return a file's picture in RGB. Transparency is dropped.

    Raises ValueError for data that is not a picture of one frame, and for a picture that is larger than `MAX_SIDE`
    pixels or rotated by EXIF.
    """
    with _open_picture(data) as image:
        found: Pixels = image.convert("RGB")
        return found


@contextmanager
def _open_picture(data: bytes) -> Iterator[Any]:
    """Open a picture file and check its size, frames and orientation. All errors within are ValueErrors."""
    from PIL import Image, UnidentifiedImageError

    if len(data) > MAX_BYTES:
        raise ValueError(f"the image cannot be read: it has more than {MAX_BYTES:,} bytes")
    try:
        check_structure(data)
        with _FILTERING, warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit of `_check` is lower
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
        with opened as image:
            _check(image)
            yield image
    except UnidentifiedImageError:  # its own message is only an object's address
        raise ValueError("the image cannot be read: its format is unknown (PNG, JPEG and WebP are)") from None
    except _PictureRefused:
        raise
    except Exception as error:  # noqa: BLE001 a decoder may fail in any way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ValueError(f"the image cannot be read: {reason}") from None


def _check(image: Any) -> None:
    if max(image.size) > MAX_SIDE:
        raise _PictureRefused(f"an image of {image.width} x {image.height} pixels is too large")
    if getattr(image, "is_animated", False):
        raise _PictureRefused("the image is animated: choose one of its frames")
    has_exif = image.format != "PNG" or "exif" in image.info  # or the whole PNG would be decoded to look for it
    if has_exif and image.getexif().get(_ORIENTATION, 1) != 1:
        raise _PictureRefused("the image is rotated by its EXIF data: save it upright")


class _PictureRefused(ValueError):
    """Raised for a readable picture that is not accepted."""
