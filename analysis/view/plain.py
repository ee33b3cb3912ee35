"""Values as JSON that no text in it can break: pure ASCII, no number that JSON has not, long texts cut."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

LONGEST = 20_000
"""Characters of a text that the page gets unless it asks for all of it."""
WHOLE = 2 * 10**6
"""Characters of a text that the page gets at most."""


def written(value: Any) -> str:
    """The value as JSON: null for what it has no number for; surrogates, U+2028 and the like stand in it as escapes."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """A value as JSON has it: numpy's numbers as Python's, dates as text, NaN as null."""
    if isinstance(value, str) or value is None or value is True or value is False:
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)  # a browser's numbers are floats
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def text(value: str, most: int = LONGEST) -> Any:
    """A text; of a longer one its beginning, and how long it is."""
    return value if len(value) <= most else {"text": value[:most], "of": len(value)}
