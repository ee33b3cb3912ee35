"""Tool calls out of what a model wrote. The text may be hostile: for any text the answer is a list.

Three ways to write a call: `<tool_call>{"name": …, "arguments": {…}}</tool_call>` as Hermes and Qwen models do, the
bare JSON object, and `name(argument=1, other="x")` with literal values, alone on its lines.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

MOST_CALLS = 4
"""Calls of one reply that are run."""
LONGEST_REPLY = 20_000
"""Characters of a reply that are read."""
DEEPEST = 16
"""Lists and objects inside each other in an argument."""
LONGEST_NUMBER = 40
"""Characters of a whole number."""

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FENCED = re.compile(r"\A\s*```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)
NAMED = re.compile(r'(?:^|(?<=\}))[ \t]*([\[{]\s*(?:\{\s*)?"name")', re.MULTILINE)
WRITTEN = re.compile(r"[^\W\d]\w*\(.*\)", re.DOTALL)
NAMES = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Call:
    """A tool's name and its arguments, by name or by position; or a `problem`: why it cannot be run."""

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    problem: str = ""


def read_calls(text: str, limit: int = MOST_CALLS) -> list[Call]:
    """The calls that a reply consists of or holds, in order; an unreadable one says why; none: it calls no tool.

    What follows the first `limit` calls is not run: one more entry says so.
    """
    text = text[:LONGEST_REPLY]
    if OPEN in text:
        calls = list(islice(_tagged(text), limit + 1))
    else:
        fenced = FENCED.match(text)
        text = (fenced[1] if fenced else text).strip()
        calls = list(islice(_bare(text), limit + 1)) or list(islice(_written(text), limit + 1))
    if len(calls) > limit:
        calls[limit] = Call(problem=f"at most {limit} calls are run per reply; the others were not")
    return calls


def _tagged(text: str) -> Iterator[Call]:
    at = text.find(OPEN)
    while at >= 0:
        at += len(OPEN)
        start = at + len(text[at:]) - len(text[at:].lstrip())
        if text[start : start + 1] in ("{", "["):
            # Decoded from here on, so that a string may hold a closing tag.
            calls, at = _objects(text, start)
            yield from calls
        else:
            body = text[start:].partition(OPEN)[0].partition(CLOSE)[0].strip()
            yield from list(_written(body)) or [Call(problem=f"no call between {OPEN} and {CLOSE}")]
        at = text.find(OPEN, at)


def _objects(text: str, start: int) -> tuple[list[Call], int]:
    """The calls in the JSON value at `start`, and where it ends."""
    try:
        value, end = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as why:
        return [Call(problem=f"the call is not JSON ({_reason(why)})")], start
    return [_call(entry) for entry in (value if isinstance(value, list) else [value])], end


def _bare(text: str) -> Iterator[Call]:
    """JSON objects with a name, from the start of a line on; other JSON is not a call."""
    at = 0
    while match := NAMED.search(text, at):
        calls, at = _objects(text, match.start(1))
        yield from calls
        if at == match.start(1):  # unreadable: where it ends cannot be known
            return


def _written(text: str) -> Iterator[Call]:
    """Calls in Python's syntax: the whole text, or single lines of it."""
    pieces = [text] if WRITTEN.fullmatch(text) and _parsed(text) else text.splitlines()
    for piece in pieces:
        if WRITTEN.fullmatch(piece.strip()):
            yield from (_literal_call(node) for node in _parsed(piece.strip()))


def _parsed(text: str) -> list[ast.Call]:
    """The calls of plain names that the text consists of; none where it is anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the model's strings
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls = [node.value for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return calls if len(calls) == len(body) and all(isinstance(call.func, ast.Name) for call in calls) else []


def _literal_call(node: ast.Call) -> Call:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    try:
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("** is not read")
        named = _once([(str(keyword.arg), _literal(keyword.value)) for keyword in node.keywords])
        return Call(name, named, tuple(map(_literal, node.args)))
    except ValueError as why:
        return Call(name, problem=str(why))


def _literal(node: ast.expr, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"the arguments are nested more than {DEEPEST} deep")
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return _number(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return _number(-value)
        case ast.Name(id="true" | "false" | "null" as name):
            return NAMES[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_literal(part, depth + 1) for part in parts]
        case ast.Dict(keys=keys, values=values) if all(keys):
            pairs = [
                (_literal(key, depth + 1), _literal(value, depth + 1))
                for key, value in zip(keys, values, strict=True)
                if key
            ]
            return _once([(str(key), value) for key, value in pairs])
    raise ValueError("the arguments must be plain values: texts in quotes, numbers, true, false, null, lists, objects")


def _call(value: Any) -> Call:
    """The call in a JSON value; models also write their arguments as JSON in a string."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call(problem='a call is {"name": "…", "arguments": {…}}')
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = DECODER.decode(arguments)
        except (ValueError, RecursionError) as why:
            return Call(value["name"], problem=f"the arguments are not JSON ({_reason(why)})")
    if not isinstance(arguments, dict):
        return Call(value["name"], problem="the arguments must be an object")
    if _depth(arguments) > DEEPEST:
        return Call(value["name"], problem=f"the arguments are nested more than {DEEPEST} deep")
    if set(value) - {"name", "arguments"}:
        return Call(value["name"], problem="a call has a name and arguments, nothing else")
    return Call(value["name"], arguments)


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested, counted level by level."""
    depth, level = 0, [value]
    while level := [entry for entry in level if isinstance(entry, dict | list)]:
        depth += 1
        level = [part for entry in level for part in (entry.values() if isinstance(entry, dict) else entry)]
    return depth - 1


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        raise ValueError("a key is there twice")
    return by_key


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    if isinstance(value, int) and abs(value) >= 10**LONGEST_NUMBER:
        raise ValueError(f"a number has more than {LONGEST_NUMBER} digits")
    return value


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has more than {LONGEST_NUMBER} digits")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


# Not strict: models write line breaks into their strings.
DECODER = json.JSONDecoder(
    object_pairs_hook=_once,
    parse_constant=_constant,
    parse_float=lambda digits: _number(float(digits)),
    parse_int=_whole,
    strict=False,
)
