"""Read images of requests and data sets. Size, type and header are checked before anything is decoded.

Accepted are PNG, JPEG and WebP as base64 or, in data sets, as files. Addresses are never fetched.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

from games.contracts import Image
from games.pictures import read_header
from games.plain_files import read_plain

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")
"""Accepted media types."""
MAX_IMAGES, MAX_BYTES = 1024, 8 << 20
"""Maximum images of a chat, and maximum bytes of an image."""
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,32});base64,")


class ImageParts:
    """Reader of the images in one chat's messages. `pictures` collects their bytes by hash."""

    def __init__(self, folder: Path | None = None) -> None:
        """Create a reader for a request or, with a `folder`, for a row of the data set there, which may name files."""
        self._folder, self._count = folder, 0
        self.pictures: dict[str, bytes] = {}
        self.files: list[str] = []
        """Hashes of the images that came from files."""

    def read(self, part: dict[str, Any]) -> Image:
        """Return the image of a part and store its bytes in `pictures`. Raises ValueError if it is not accepted.

        The part's type is `image_url` or `input_image` with a data URL, or in a data set `image` with `path` or
        `base64`.
        """
        self._count += 1
        if self._count > MAX_IMAGES:
            raise ValueError(f"a chat has at most {MAX_IMAGES:,} images")
        is_file = part["type"] == "image" and "path" in part
        if part["type"] == "image" and self._folder:
            media, data = "", self._read_row_image(part, self._folder)
        else:
            source = part.get("image_url")
            media, data = _parse_data_url(source.get("url") if isinstance(source, dict) else source)
        image = inspect_image(data)
        if media not in ("", image.media):
            raise ValueError(f"the image is declared as {media}, but its bytes are {image.media}")
        self.pictures[image.hash] = data
        self.files += [image.hash] * is_file
        return image

    def _read_row_image(self, part: dict[str, Any], folder: Path) -> bytes:
        path, text = part.get("path"), part.get("base64")
        if isinstance(text, str) and path is None:
            return _decode(text)
        if not isinstance(path, str) or text is not None:
            raise ValueError("an image has a `path` or a `base64` text")
        found = Path(os.path.realpath(folder / path)) if path and path.isprintable() else folder
        if os.path.isabs(path) or not found.is_relative_to(os.path.realpath(folder)):
            raise ValueError(f"the image {path[:200]!r} is not inside the data set's folder")
        try:
            return read_plain(found, MAX_BYTES)
        except OSError as error:
            raise ValueError(f"the image {path[:200]!r} cannot be read: {error.strerror or error}") from None


def _parse_data_url(url: Any) -> tuple[str, bytes]:
    """Return media type and bytes of a data URL. Raises ValueError for anything else."""
    if not isinstance(url, str):
        raise ValueError("expected an image as a data URL")
    if not (head := _DATA_URL.match(url)):
        kind = re.match("[a-zA-Z][a-zA-Z0-9+.-]{0,30}:", url)
        raise ValueError(f"an image must be a data:image/png;base64 URL, not {kind[0] if kind else 'other text'}")
    if head[1] not in MEDIA_TYPES:
        raise ValueError(f"an image is {', '.join(MEDIA_TYPES)}, not {head[1]}")
    return head[1], _decode(url[head.end() :])


def _decode(text: str) -> bytes:
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise ValueError(f"an image has at most {MAX_BYTES >> 20} MB")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the image is not in base64") from None


def inspect_image(data: bytes) -> Image:
    """Return an encoded image's hash, type and size from its header, without decoding its pixels.

    Raises ValueError for other types than `MEDIA_TYPES`, too many bytes, pixels or parts, animations, and rotation by
    EXIF.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"an image has at most {MAX_BYTES >> 20} MB")
    media, (width, height) = read_header(data)
    return Image(hashlib.sha256(data).hexdigest(), media, width, height)
