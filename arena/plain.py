"""Conversion of values and texts to forms that are safe for JSON, Parquet and terminals."""

import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

_SURROGATE = re.compile("[\ud800-\udfff]")
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_BEARER = re.compile(r"\bsk-[\w-]{8,}|(?<=Bearer )\S+", re.IGNORECASE)


def clean_text(text: str) -> str:
    """Return the text with each lone surrogate, which UTF-8 cannot encode, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def printable(text: str) -> str:
    """Return the text on one line, without characters that could control a terminal or reorder text.

    White space becomes single spaces. Control, format (such as bidi) and private-use characters are removed.
    """
    joined = " ".join(clean_text(text).split())
    return "".join(char for char in joined if unicodedata.category(char) not in ("Cc", "Cf", "Co"))


def printable_lines(text: str, max_characters: int = 1000) -> list[str]:
    """Return the text's lines, each made `printable` and cut to `max_characters`, with up to 20 spaces of indent."""
    lines = []
    for line in clean_text(text).splitlines():
        shown = printable(line)
        indent = " " * min(len(line) - len(line.lstrip(" ")), 20)
        lines.append(indent + (shown if len(shown) <= max_characters else f"{shown[: max_characters - 1]}…"))
    return lines


def remove_secrets(text: str, variables: Iterable[str] = ()) -> str:
    """Replace secrets in the text by "…": API keys, bearer tokens, and values of secret environment variables.

    Variables are secret if their names contain KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL, or are among `variables`.
    Values of less than 8 characters are not replaced.
    """
    secrets = {value for name, value in os.environ.items() if _SECRET.search(name) or name in variables}
    for value in sorted((value for value in secrets if len(value) >= 8), key=len, reverse=True):
        text = text.replace(value, "…")
    return _BEARER.sub("…", text)


def truncate_middle(text: str, max_characters: int) -> str:
    """Shorten the text to `max_characters` by cutting its middle: a quarter of these is head, three quarters are tail.

    A line that says how many characters are missing takes the middle's place, and is not counted.
    """
    if len(text) <= max_characters:
        return text
    head = max_characters // 4
    surplus = len(text) - max_characters
    return f"{text[:head]}\n… {surplus} characters left out …\n{text[head + surplus :]}"


def require_finite(value: Real | float, field_name: str) -> float:
    """Return the value as a float. Raises ValueError, naming `field_name`, if it is NaN or infinite."""
    try:
        number = float(value)
    except OverflowError:  # an integer too large for a float
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{field_name} is {number}: only finite numbers can be stored")
    return number


def to_plain(value: Any, field_name: str, gaps: bool = False) -> Any:
    """Copy a value to dict, list, str, int, float, bool and None only.

    Tuples become lists, NumPy scalars become Python numbers, and texts are cleaned by `clean_text`. Raises ValueError,
    naming `field_name`, for other types, and for NaN and infinities, which become None if `gaps` is set.
    """
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return None if gaps and not math.isfinite(value) else require_finite(value, field_name)
    if isinstance(value, Mapping):
        return {_key(k, field_name): to_plain(v, f"{field_name}.{k}", gaps) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v, f"{field_name}[{i}]", gaps) for i, v in enumerate(value)]
    raise ValueError(f"{field_name} is a {type(value).__name__}: only numbers, text, lists and tables can be stored")


def _key(key: Any, field_name: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{field_name} has the key {key!r}: keys must be text")
    return clean_text(key)
