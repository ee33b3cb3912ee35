"""Read picture files of games, data sets and tools. Their bytes are untrusted."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from games.contracts import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""File formats that are read, by Pillow's names. Others may start programs (EPS) or have no size (SVG)."""
LARGEST = 4096
"""Maximum width and height of an image, in pixels."""
MOST_BYTES = 64 << 20
_ORIENTATION = 0x0112
"""EXIF tag of an image's orientation; 1 is upright."""


def check_picture(image: Image, data: bytes) -> None:
    """Raise ValueError, with the image's hash, unless the file has the image's media type, width and height.

    Reads only the file's header.
    """
    try:
        with _opened(data) as found:
            media, size = f"image/{(found.format or '').lower()}", found.size
    except ValueError as error:
        raise ValueError(f"image {image.hash}: {error}") from None
    if media != image.media:
        raise ValueError(f"image {image.hash}: the file is {media}, not {image.media}")
    if size != (image.width, image.height):
        shown = f"{image.width} x {image.height}"
        raise ValueError(f"image {image.hash}: the file has {size[0]} x {size[1]} pixels, not {shown}")


def decode_picture(data: bytes) -> "Pixels":
    """Return a file's picture in RGB. Transparency is dropped.

    Raises ValueError for data that is no picture of one frame, and for one that is larger than `LARGEST` pixels or
    rotated by EXIF.
    """
    with _opened(data) as image:
        return image.convert("RGB")


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """Open a picture file and check its size, frames and orientation. All errors within are ValueErrors."""
    from PIL import Image, UnidentifiedImageError

    if len(data) > MOST_BYTES:
        raise ValueError(f"the image cannot be read: it has more than {MOST_BYTES:,} bytes")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check(image)
            yield image
    except UnidentifiedImageError:  # whose message is the address of an object
        raise ValueError("the image cannot be read: its format is unknown") from None
    except _Refused:
        raise
    except Exception as error:  # noqa: BLE001 a decoder may fail in any way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ValueError(f"the image cannot be read: {reason}") from None


def _check(image: Any) -> None:
    if max(image.size) > LARGEST:
        raise _Refused(f"an image of {image.width} x {image.height} pixels is too large")
    if getattr(image, "n_frames", 1) > 1:
        raise _Refused("the image is animated: choose one of its frames")
    if image.getexif().get(_ORIENTATION, 1) != 1:
        raise _Refused("the image is rotated by its EXIF data: save it upright")


class _Refused(ValueError):
    """Raised for a readable picture that is not accepted."""
