"""Parsing of environment names with settings, such as `FrozenLake-v1(is_slippery=false, map_name=4x4)`."""

from __future__ import annotations

import contextlib
import re

from games.base import to_one_line

Setting = bool | int | float | str
CALL = re.compile(r"([^()]+?)\s*(?:\(([^()]*)\))?")
BOOLEANS: dict[str, Setting] = {"true": True, "false": False}


def split_settings(text: str) -> tuple[str, dict[str, Setting]]:
    """Split `NAME(setting=value, …)` into the name and its settings. The brackets may be missing.

    Values are parsed as true, false or numbers, otherwise kept as text. Raises ValueError, in one line, for any other
    form.
    """
    match = CALL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"write NAME or NAME(setting=value, …), not '{to_one_line(text, 80)}'")
    settings: dict[str, Setting] = {}
    for part in (match[2] or "").split(",") if (match[2] or "").strip() else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key.isidentifier() or key in settings:
            raise ValueError(f"write settings as NAME(setting=value, …), each once, not '{to_one_line(part, 80)}'")
        settings[key] = _parse_value(value)
    return match[1], settings


def _parse_value(text: str) -> Setting:
    if text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
