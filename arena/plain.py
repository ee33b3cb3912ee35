"""Plain values: what can be written to JSON, Parquet and a terminal safely."""

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
    """The same text with lone surrogates, which no UTF-8 file can hold, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def printable(text: str) -> str:
    """The text on one line, without what could steer a terminal or reorder what is read.

    White space of any kind becomes a blank; control, format (bidi) and private-use characters are removed.
    """
    joined = " ".join(clean_text(text).split())
    return "".join(char for char in joined if unicodedata.category(char) not in ("Cc", "Cf", "Co"))


def printable_lines(text: str, most: int = 1000) -> list[str]:
    """The text's lines, each harmless like `printable`, of at most so many characters, its indent kept."""
    lines = []
    for line in clean_text(text).splitlines():
        shown = printable(line)
        indent = " " * min(len(line) - len(line.lstrip(" ")), 20)
        lines.append(indent + (shown if len(shown) <= most else f"{shown[: most - 1]}…"))
    return lines


def without_secrets(text: str, variables: Iterable[str] = ()) -> str:
    """The text without the values of environment variables that hold keys, by their names or named here."""
    held = {value for name, value in os.environ.items() if _SECRET.search(name) or name in variables}
    for value in sorted((value for value in held if len(value) >= 8), key=len, reverse=True):
        text = text.replace(value, "…")
    return _BEARER.sub("…", text)


def bounded(text: str, most: int) -> str:
    """At most so many characters of the text: its beginning and, three times as much, its end."""
    if len(text) <= most:
        return text
    head = most // 4
    return f"{text[:head]}\n… {len(text) - most} characters left out …\n{text[len(text) - (most - head) :]}"


def finite(value: Real | float, where: str) -> float:
    """The value as a float; ValueError naming `where` when it is NaN or infinite."""
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{where} is {number}: only finite numbers can be kept")
    return number


def plain(value: Any, where: str, gaps: bool = False) -> Any:
    """A copy made of dict, list, str, int, float, bool and None only; ValueError naming `where` otherwise.

    Tuples become lists, numpy scalars become Python's, text is cleaned. NaN and infinities are refused or,
    with `gaps`, become None.
    """
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return None if gaps and not math.isfinite(value) else finite(value, where)
    if isinstance(value, Mapping):
        return {_key(k, where): plain(v, f"{where}.{k}", gaps) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, f"{where}[{i}]", gaps) for i, v in enumerate(value)]
    raise ValueError(f"{where} is a {type(value).__name__}: only numbers, text, lists and tables can be kept")


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{where} has the key {key!r}: keys are text")
    return clean_text(key)
