"""Values of tool calls: texts that a tool's schema gives a type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from games.untrusted_json import from_text, is_too_deep

Definition = Mapping[str, Any]
"""Definition of a tool as in OpenAI's API: {"type": "function", "function": {name, description, parameters}}."""


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
    value = from_text(text)
    return text if is_too_deep(value) else value


def _kinds(option: Mapping[str, Any]) -> list[Any]:
    kind = option.get("type", "string")
    return kind if isinstance(kind, list) else [kind]
