"""Conversion of values to safe JSON: pure ASCII, no NaN, long texts cut."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_CHARACTERS = 20_000
"""Maximum length of a text, unless the page requests the full text."""
MAX_FULL_CHARACTERS = 2 * 10**6
"""Maximum length of a text if the page requests the full text."""


def to_json(value: Any) -> str:
    """Encode the value as JSON in ASCII, after `to_plain`: NaN and infinity become null."""
    return json.dumps(to_plain(value), allow_nan=False, separators=(",", ":"))


def to_plain(value: Any) -> Any:
    """Convert a value to JSON types: NumPy scalars to numbers, NaN and infinity to None, sets and tuples to lists.

    Integers from 2**53 on, which a browser cannot hold, and values of other types become text.
    """
    if isinstance(value, str) or value is None or value is True or value is False:
        return value
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [to_plain(item) for item in value]
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)  # a browser's numbers are floats
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def truncate(value: str, max_characters: int = MAX_CHARACTERS) -> Any:
    """Return the text, or {"text": its beginning, "of": its full length} if it exceeds `max_characters`."""
    return value if len(value) <= max_characters else {"text": value[:max_characters], "of": len(value)}
