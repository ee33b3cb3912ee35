"""Tool shapes from the JSON schemas of MCP servers. Names, descriptions and schemas are untrusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from games.base import to_one_line
from games.untrusted_json import is_too_deep
from simulators.tools import Shape

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
DESCRIPTION = 300
"""Maximum number of characters of a tool's description."""
MAX_CHARACTERS = 8_000
"""Maximum number of characters of a schema, because schemas become part of prompts."""
TYPES: Mapping[str, tuple[type, str]] = {
    "string": (str, "str"), "integer": (int, "int"), "number": (float, "float"), "boolean": (bool, "bool"),
    "array": (list, "list"), "object": (dict, "dict"), "null": (type(None), "null"),
}  # fmt: skip
"""Python type, and its name in signatures, by JSON type."""


def build_shape(name: str, description: str, schema: Any) -> Shape:
    """Return the shape of a tool whose arguments have this JSON schema.

    Arguments are validated by type and enumeration here; the server validates the rest. Raises ValueError for an
    invalid name or schema.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"a tool's name has up to 64 letters, digits, _ and -, not {to_one_line(name, 80)!r}")
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise ValueError(f"the schema of tool {name} is not an object schema")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise ValueError(f"the schema of tool {name} has no valid properties")
    if is_too_deep(dict(schema)) or len(json.dumps(schema)) > MAX_CHARACTERS:
        raise ValueError(f"the schema of tool {name} is too large: at most {MAX_CHARACTERS:,} characters, 16 levels")
    parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
    signature = (_write_signature(key, part, key in required) for key, part in properties.items())
    return Shape(
        name=name,
        description=to_one_line(description, DESCRIPTION) or name,
        signature=f"{name}({', '.join(signature)})",
        parameters=parameters,
        names=tuple(properties),
        arguments=_build_model(name, properties, required),
    )


def _build_model(name: str, properties: Mapping[str, Any], required: list[Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for index, (key, part) in enumerate(properties.items()):
        hint = _read_hint(part)
        default = ... if key in required else None
        fields[f"p{index}"] = (hint if key in required else hint | None, Field(default, alias=key))
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model: type[BaseModel] = create_model(name, __config__=config, **fields)
    return model


def _read_hint(part: Any) -> Any:
    """Return the Python type of a property; `Any` if its schema has no simple type."""
    if not isinstance(part, Mapping):
        return Any
    options = part.get("enum")
    if isinstance(options, list) and options and all(isinstance(option, str | int) for option in options):
        return Literal[tuple(options)]
    types = [python_type for python_type, _ in _list_types(part)]
    if not types:
        return Any
    hint: Any = types[0]
    for other in types[1:]:
        hint = hint | other
    return hint


def _write_signature(key: str, part: Any, is_required: bool) -> str:
    names = [name for _, name in _list_types(part)]
    return f"{to_one_line(key, 64)}: {'|'.join(names) or 'any'}{'' if is_required else ' = null'}"


def _list_types(part: Any) -> list[tuple[type, str]]:
    """Return the entries of `TYPES` for a property's types, in order."""
    value = part.get("type") if isinstance(part, Mapping) else None
    names = value if isinstance(value, list) else [value]
    return [TYPES[name] for name in names if isinstance(name, str) and name in TYPES]
