"""Values of tool calls: JSON with bounds on depth and numbers, and texts that a tool's schema gives a type."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

DEEPEST = 16
"""Maximum nesting of lists and objects in an argument."""
LONGEST_NUMBER = 40
"""Maximum digits of an integer."""

Definition = Mapping[str, Any]
"""Definition of a tool as in OpenAI's API: {"type": "function", "function": {name, description, parameters}}."""


def is_too_deep(value: Any) -> bool:
    """Return True if lists and objects are nested more than `DEEPEST` deep inside a value."""
    level = [value]
    for _ in range(DEEPEST + 1):
        nested = [entry for entry in level if isinstance(entry, dict | list)]
        level = [part for entry in nested for part in (entry.values() if isinstance(entry, dict) else entry)]
    return any(isinstance(entry, dict | list) for entry in level)


def converted(name: str, texts: Mapping[str, str], tools: Sequence[Definition]) -> dict[str, Any]:
    """Convert arguments given as texts by the tool's JSON schema; without one they stay texts."""
    functions = (tool["function"] for tool in tools)
    schema: Mapping[str, Any] = next((each.get("parameters", {}) for each in functions if each["name"] == name), {})
    properties = schema.get("properties", {})
    return {key: _value(text, properties.get(key, {})) for key, text in texts.items()}


def _value(text: str, schema: object) -> Any:
    options = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
    kinds = [kind for option in options if isinstance(option, Mapping) for kind in _kinds(option)]
    if not kinds or "string" in kinds:
        return text
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)
    return text if is_too_deep(value) else value


def _kinds(option: Mapping[str, Any]) -> list[Any]:
    kind = option.get("type", "string")
    return kind if isinstance(kind, list) else [kind]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has more than {LONGEST_NUMBER} digits")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number is too large")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=False
)
"""Decoder with bounds. Not strict, because models write line breaks into their strings."""
