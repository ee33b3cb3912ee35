"""Parse the arguments of tool calls: texts by the tool's JSON schema, or Python literals."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from games.python_source import parse_python
from games.untrusted_json import decode_literal, decode_text, is_too_deep, to_unique_dict

Definition = Mapping[str, Any]
"""Definition of a tool as in OpenAI's API: {"type": "function", "function": {name, description, parameters}}."""
NAME = re.compile(r"[^\W\d][\w.-]{0,63}")
"""Name of a tool."""


def convert_arguments(name: str, texts: Mapping[str, str], tools: Sequence[Definition]) -> dict[str, Any]:
    """Convert arguments from texts to the types in the tool's JSON schema; without a schema they stay texts."""
    functions = (tool["function"] for tool in tools)
    schema: Mapping[str, Any] = next((f.get("parameters", {}) for f in functions if f["name"] == name), {})
    properties = schema.get("properties", {})
    return {key: _convert_value(text, properties.get(key, {})) for key, text in texts.items()}


def _convert_value(text: str, schema: object) -> Any:
    options = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
    kinds = [kind for option in options if isinstance(option, Mapping) for kind in _list_types(option)]
    if not kinds or "string" in kinds:
        return text
    value = decode_text(text)
    return text if is_too_deep(value) else value


def _list_types(option: Mapping[str, Any]) -> list[Any]:
    kind = option.get("type", "string")
    return kind if isinstance(kind, list) else [kind]


def parse_python_calls(source: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, arguments) of a call in Python syntax, or of each in a list. Raises ValueError for anything else.

    All arguments must be named and literals.
    """
    try:
        node = parse_python(source.strip(), "eval").body
        calls = [_parse_python_call(each) for each in (node.elts if isinstance(node, ast.List) else [node])]
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not calls:
        raise ValueError("no call")
    return calls


def _parse_python_call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args or not NAME.fullmatch(name := ast.unparse(node.func)):
        raise ValueError("no call with named arguments")
    arguments = to_unique_dict([(word.arg or "", decode_literal(word.value, depth=1)) for word in node.keywords])
    if "" in arguments or is_too_deep(arguments):
        raise ValueError("** or arguments that are nested too deep")
    return name, arguments
