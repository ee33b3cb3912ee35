"""Limits on the parts of PNG and JPEG files, checked before Pillow, which can take minutes for a small file of many."""

from __future__ import annotations

from struct import unpack_from

MAX_CHUNKS = 20_000
"""Maximum chunks of a PNG. A file of 64 MB in chunks of 4 KB has 16,384."""
MAX_SEGMENTS, MAX_SCANS = 500, 40
"""Maximum segments of a JPEG before its pixels, and maximum scans. Usual files have up to 30 and 12. Even a short scan
is applied to all pixels, so 8 MB of scans could take hours."""
_PNG, _JPEG, _SCAN, _PROFILE = b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\xff\xda", b"iCCP"
_START, _SCAN_MARKER, _ALONE = 2, 0xDA, {0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)}
"""Offset of a JPEG's first marker; the marker of a scan; markers after which Pillow skips no segment."""


def check_structure(data: bytes) -> None:
    """Raise ValueError for a PNG or JPEG with too many parts. Other faults are left to the decoder."""
    if data.startswith(_PNG):
        _check_chunks(data)
    elif data.startswith(_JPEG):
        if data.count(_SCAN) > MAX_SCANS:
            raise ValueError(f"it has more than {MAX_SCANS} scans: save it as a baseline JPEG")
        _check_segments(data)


def _check_chunks(data: bytes) -> None:
    offset, profiles = len(_PNG), 0
    for _ in range(MAX_CHUNKS):
        if offset + 8 > len(data):
            return
        length, kind = unpack_from(">I4s", data, offset)
        profiles += kind == _PROFILE
        if profiles > 1:  # each may be a megabyte, compressed to a thousandth
            raise ValueError("it has several colour profiles")
        offset += 12 + length
    raise ValueError(f"it has more than {MAX_CHUNKS:,} chunks")


def _check_segments(data: bytes) -> None:
    """Walk over the segments before the first scan as Pillow does, byte by byte where there is no marker."""
    offset = _START
    for _ in range(MAX_SEGMENTS):
        if offset + 4 > len(data):
            return
        first, marker, length = unpack_from(">BBH", data, offset)
        if first == 0xFF and marker == _SCAN_MARKER:
            return
        is_segment = first == 0xFF and marker not in (0, 0xFF)
        offset += (2 if marker in _ALONE else 2 + length) if is_segment else 1
    raise ValueError(f"it has more than {MAX_SEGMENTS} segments or stray bytes")
