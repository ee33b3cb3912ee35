"""Small picture files."""

import io

from PIL import Image as Pixels


def make_png(width: int, height: int) -> bytes:
    """Return a red PNG."""
    file = io.BytesIO()
    Pixels.new("RGB", (width, height), (200, 10, 10)).save(file, "PNG")
    return file.getvalue()
