"""Decode values that models wrote, as JSON or as Python literals, with bounds on depth and size."""

import ast
import json
import math
from typing import Any

MAX_DEPTH = 16
"""Maximum nesting of lists and objects in an argument of a tool call."""
MAX_DIGITS = 40
"""Maximum digits of an integer."""
NAMES = {"true": True, "false": False, "null": None}


def is_too_deep(value: Any) -> bool:
    """Return True if lists and dicts are nested more than `MAX_DEPTH` deep inside a value."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nested = [entry for entry in level if isinstance(entry, dict | list)]
        level = [part for entry in nested for part in (entry.values() if isinstance(entry, dict) else entry)]
    return any(isinstance(entry, dict | list) for entry in level)


def to_unique_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return (key, value) pairs as a dict. Raises ValueError for a duplicate key."""
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        raise ValueError("a key is there twice")
    return by_key


def require_bounded(value: Any) -> Any:
    """Return the value unchanged. Raises ValueError for an infinite or overlong number."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return value


def decode_text(text: str) -> Any:
    """Decode a text as JSON, or as Python's True, False or None; return the text itself if it is neither."""
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)


def decode_literal(node: ast.expr, depth: int = 0) -> Any:
    """Return the value of a Python literal, which may contain JSON's true, false and null.

    Raises ValueError, with a reason for the model, for anything else. `depth` counts recursive calls.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"the arguments are nested more than {MAX_DEPTH} deep")
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return require_bounded(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return require_bounded(-value)
        case ast.Name(id="true" | "false" | "null" as name):
            return NAMES[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [decode_literal(part, depth + 1) for part in parts]
        case ast.Dict(keys=keys, values=values) if all(keys):
            pairs = [
                (decode_literal(key, depth + 1), decode_literal(value, depth + 1))
                for key, value in zip(keys, values, strict=True)
                if key
            ]
            return to_unique_dict([(str(key), value) for key, value in pairs])
    raise ValueError("the arguments must be plain values: texts in quotes, numbers, true, false, null, lists, objects")


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


# Not strict, because models write line breaks into their strings.
DECODER = json.JSONDecoder(
    object_pairs_hook=to_unique_dict,
    parse_constant=_refuse_constant,
    parse_float=lambda digits: require_bounded(float(digits)),
    parse_int=_parse_integer,
    strict=False,
)
