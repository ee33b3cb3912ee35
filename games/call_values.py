"""Conversion of JSON values and Python literals to calls, with bounds on depth and size."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from games import call_formats as formats
from games.untrusted_json import DECODER, MAX_DEPTH, decode_literal, is_too_deep, to_unique_dict

USAGE = 'a call is {"name": "…", "arguments": {…}}'


@dataclass(frozen=True)
class Call:
    """A tool call parsed from a model's text: the tool's `name` with named `arguments` or `positional` ones.

    If it cannot be run, `problem` says why, else it is "".
    """

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    problem: str = ""
    as_text: bool = False
    """True if the format has no types, so that each argument is a text to be converted to its parameter's type."""


def find_tool_name(function: ast.expr) -> str:
    """Return the tool that a call's function expression names: `x` for `x`, `tools.x` and `x.call`, else ""."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=space), attr=name) if space in formats.NAMESPACES:
            return name
        case ast.Attribute(value=ast.Name(id=name), attr="call"):  # as Llama 3.1 writes it
            return name
    return ""


def from_python_call(node: ast.Call) -> Call:
    """Convert a Python call to a Call, with a `problem` if an argument is not a literal or is given twice."""
    name = find_tool_name(node.func)
    try:
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("** is not read")
        named = to_unique_dict([(str(keyword.arg), decode_literal(keyword.value)) for keyword in node.keywords])
        return Call(name, named, tuple(map(decode_literal, node.args)))
    except ValueError as why:
        return Call(name, problem=str(why))


def to_calls(value: Any, depth: int = 0) -> list[Call]:
    """Convert decoded JSON to calls: an object, a list of objects, or OpenAI's wrappers around them.

    Anything else gives a Call with a `problem`. `depth` counts recursive calls.
    """
    if depth > MAX_DEPTH:
        return [Call(problem=f"the call is nested more than {MAX_DEPTH} deep")]
    if isinstance(value, list):
        return [call for entry in value for call in to_calls(entry, depth + 1)]
    if not isinstance(value, dict):
        return [Call(problem=USAGE)]
    for holder in formats.HOLDERS:
        if isinstance(value.get(holder), dict | list):
            return to_calls(value[holder], depth + 1)
    keys = next(
        ((row.name, row.arguments) for row in formats.SHAPES if {row.name, row.arguments} <= value.keys()),
        ("name", "arguments"),
    )
    name = value.get(keys[0])
    if not isinstance(name, str):
        return [Call(problem=USAGE)]
    if value.keys() - {*keys, *formats.IGNORED}:
        return [Call(name, problem="a call has a name and arguments, nothing else")]
    return [make_call(name, value.get(keys[1], {}))]


def make_call(name: str, arguments: Any) -> Call:
    """Return a Call of this tool with the arguments, given as a dict or as the JSON text of one.

    Other arguments give a Call with a `problem`. A prefix `functions.` of the name is dropped.
    """
    if isinstance(arguments, str):
        try:
            arguments = DECODER.decode(arguments)
        except (ValueError, RecursionError) as why:
            return Call(name, problem=f"the arguments are not JSON ({explain_error(why)})")
    if not isinstance(arguments, dict):
        return Call(name, problem="the arguments must be an object")
    if is_too_deep(arguments):
        return Call(name, problem=f"the arguments are nested more than {MAX_DEPTH} deep")
    return Call(name.removeprefix("functions."), arguments)


def explain_error(error: Exception) -> str:
    """Return why the JSON decoder refused a text, in a few words for the model."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)
