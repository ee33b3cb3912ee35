"""Conversion of values and text to forms that are safe for JSON, Parquet and a terminal."""

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
    """Return the text on one line without characters that could control a terminal or reorder text.

    White space becomes single spaces; control, format (bidi) and private-use characters are removed.
    """
    joined = " ".join(clean_text(text).split())
    return "".join(char for char in joined if unicodedata.category(char) not in ("Cc", "Cf", "Co"))


def printable_lines(text: str, max_characters: int = 1000) -> list[str]:
    """Return the text's lines, each made `printable`, cut to `max_characters`, and with its indent (at most 20)."""
    lines = []
    for line in clean_text(text).splitlines():
        shown = printable(line)
        indent = " " * min(len(line) - len(line.lstrip(" ")), 20)
        lines.append(indent + (shown if len(shown) <= max_characters else f"{shown[: max_characters - 1]}…"))
    return lines


def remove_secrets(text: str, variables: Iterable[str] = ()) -> str:
    """Replace secrets in the text by "…": API keys, bearer tokens, and values of variables with secret names.

    The values are those of this process's environment, of at least 8 characters. `variables` names further secret ones.
    """
    secrets = {value for name, value in os.environ.items() if _SECRET.search(name) or name in variables}
    for value in sorted((value for value in secrets if len(value) >= 8), key=len, reverse=True):
        text = text.replace(value, "…")
    return _BEARER.sub("…", text)


def truncate_middle(text: str, max_characters: int) -> str:
    """Shorten the text to `max_characters` by cutting its middle; a quarter of the rest is head, three quarters tail.

    A line in place of the cut, in addition to `max_characters`, says how many characters are missing.
    """
    if len(text) <= max_characters:
        return text
    head = max_characters // 4
    cut = len(text) - max_characters
    return f"{text[:head]}\n… {cut} characters left out …\n{text[head + cut :]}"


def require_finite(value: Real | float, field_name: str) -> float:
    """Return the value as a float. Raises ValueError, naming `field_name`, if it is NaN or infinite."""
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{field_name} is {number}: only finite numbers can be stored")
    return number


def to_plain(value: Any, field_name: str, gaps: bool = False) -> Any:
    """Copy a value into dict, list, str, int, float, bool and None only.

    Tuples become lists, numpy scalars Python numbers, and text is cleaned. With `gaps`, NaN and infinities become None.
    Raises ValueError, naming `field_name`, for other types, and without `gaps` for NaN and infinities.
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
