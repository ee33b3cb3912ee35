"""Parser of tool calls in model output. It accepts any text, hostile or not, and returns a list of calls.

`call_formats` has a row for each format. A marked call that cannot be parsed gives a Call whose `problem` is the
reason. Calls inside a thought (`<think>…</think>`) are never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import islice

from games import call_formats as formats
from games.call_values import USAGE, Call, explain_error, find_tool_name, from_python_call, make_call, to_calls
from games.python_source import parse_python
from games.untrusted_json import DECODER, to_unique_dict

__all__ = ["Call", "read_calls"]

MAX_CALLS = 4
"""Maximum number of calls run per reply."""
MAX_REPLY_CHARACTERS = 20_000
"""Maximum number of characters parsed per reply."""

FENCED = re.compile(r"\A\s*```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)
NEXT_OBJECT = re.compile(r"\s*+[;,]?\s*+(?=\{)")
PYTHON = re.compile(r"\[?\s*[^\W\d][\w.]*\s*\(.*\)\s*\]?", re.DOTALL)
PYTHON_LIST = re.compile(r"\[\s*[^\W\d]")
BLANKS = re.compile(r"\s*(?:```\w*\s*)?")
"""Text allowed before a body, including the opening of a fence."""

Parsed = tuple[list[Call], int]
"""Parsed calls, and the offset at which parsing continues."""


def read_calls(text: str, limit: int = MAX_CALLS) -> list[Call]:
    """Return the tool calls in a reply, in order, or [] if it calls no tool. Calls inside thoughts are ignored.

    A call that cannot be parsed has a `problem`. If there are more than `limit` calls, one more entry says that the
    others are not run. Never raises; only the first 20,000 characters are parsed.
    """
    text = text[:MAX_REPLY_CHARACTERS]
    fenced = FENCED.match(text)
    plain = (fenced[1] if fenced else text).strip()
    calls = (
        _collect_calls(text, formats.WRAPPED, _parse_wrapped, limit)
        or _collect_calls(plain, formats.BARE, _parse_bare, limit)
        or list(islice(_parse_python_calls(plain), limit + 1))
        or _collect_calls(plain, formats.LINES, _parse_line, limit)
        or _refuse_thought(text.strip())
    )
    if len(calls) > limit:
        calls[limit] = Call(problem=f"at most {limit} calls are run per reply; the others were not")
    return calls


def _collect_calls(
    text: str, openings: re.Pattern[str], read: Callable[[str, re.Match[str]], Parsed], limit: int
) -> list[Call]:
    """Return the calls that `read` parses at each match of `openings` outside thoughts, at most `limit` + 1.

    `openings` also matches the tags of thoughts. An unclosed thought extends to the end of the text. A closing tag
    without an opening one ends a thought that started before the text, because many chat templates open it in the
    prompt.
    """
    calls: list[Call] = []
    position, is_after_thought = 0, False
    while found := openings.search(text, position):
        position = max(found.end(), found.start() + 1)
        if found["thought"]:
            position, is_after_thought = _find_thought_end(text, found), True
        elif found["after"]:
            if not is_after_thought:
                calls.clear()
            is_after_thought = True
        elif len(calls) <= limit:
            more, position = read(text, found)
            calls += more[: limit + 1 - len(calls)]
    return calls


def _find_thought_end(text: str, opening: re.Match[str]) -> int:
    closing = dict(formats.THOUGHTS)[opening["thought"]]
    depth = 1
    for mark in re.finditer(f"{re.escape(opening['thought'])}|{re.escape(closing)}", text[opening.end() :]):
        depth += -1 if mark[0] == closing else 1
        if depth == 0:
            return opening.end() + mark.end()
    return len(text)


def _refuse_thought(text: str) -> list[Call]:
    """Return one Call with a `problem` if the whole reply is a thought that contains a call, else []."""
    found = formats.WRAPPED.match(text)
    if not found or not found["thought"] or _find_thought_end(text, found) < len(text):
        return []
    marks = (mark for pattern in (formats.WRAPPED, formats.BARE, formats.LINES) for mark in pattern.finditer(text))
    if all(mark["call"] is None for mark in marks):
        return []
    return [Call(problem="a call inside a thought is not run: write it after the thought")]


def _parse_wrapped(text: str, opening: re.Match[str]) -> Parsed:
    """Parse the calls inside the wrapper whose opening mark is `opening`.

    Returns the calls, or one with a `problem` if none can be parsed, and the offset at which parsing continues.
    """
    if function := formats.FUNCTION.match(text, opening.start()):
        return _parse_function(text, function)
    wrapper = next(
        row for row in formats.WRAPPERS if re.compile(row.opening, re.MULTILINE).match(text, opening.start())
    )
    start = _skip_blanks(text, opening.end())
    inner = formats.WRAPPED.match(text, start)
    if inner and inner["call"] is not None:  # a wrapper around all calls, which have wrappers of their own
        return [], start
    if text[start : start + 1] in ("{", "[") and not PYTHON_LIST.match(text, start):
        # Decode JSON from its start instead of searching for the closing mark, which a string may contain.
        return _parse_objects(text, start)
    end = _find_body_end(text, start, wrapper)
    body = text[start:end]
    if named := formats.NAMED.match(body):
        return _parse_named(named[1], text, start + named.end())
    if formats.KEY_AND_VALUE.search(body):
        name, first, parameters = formats.KEY_AND_VALUE.sub(r"<parameter=\1>", body).partition("<")
        return [_make_xml_call(name.strip(), first + parameters)], end
    calls = list(_parse_python_calls(body.strip())) or _collect_calls(body, formats.LINES, _parse_line, MAX_CALLS)
    mark = opening["call"].strip()
    place = f"between {mark} and {wrapper.closing}" if wrapper.closing else f"after {mark}"
    return calls or [Call(problem=f"nothing {place} can be read: {USAGE}")], end


def _find_body_end(text: str, start: int, wrapper: formats.Wrapper) -> int:
    """Return the offset where a wrapper's body ends: at its closing mark, the next opening mark, or the text's end."""
    following = formats.WRAPPED.search(text, start)
    while following and following["call"] is None:
        following = formats.WRAPPED.search(text, following.end())
    end = following.start() if following else len(text)
    closing = text.find(wrapper.closing, start, end) if wrapper.closing else -1
    return closing if closing >= 0 else end


def _skip_blanks(text: str, start: int) -> int:
    blanks = BLANKS.match(text, start)
    return blanks.end() if blanks else start


def _parse_bare(text: str, opening: re.Match[str]) -> Parsed:
    """Parse a call without a wrapper: JSON, or a name with JSON. Returns the calls and their end offset.

    An unparsable call extends to the end of the text.
    """
    start = opening.end()
    if text[start] in "{[":
        calls, end = _parse_objects(text, start)
    else:
        named = formats.NAMED.match(text, start)
        start = named.end() if named else start
        calls, end = _parse_named(named[1] if named else "", text, start)
    return calls, end if end > start else len(text)


def _parse_objects(text: str, start: int) -> Parsed:
    """Parse the JSON value at `start` and the objects directly after it as calls.

    Returns the calls and their end offset. If JSON is invalid, the last call has a `problem`.
    """
    calls: list[Call] = []
    while True:
        try:
            value, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as why:
            return [*calls, Call(problem=f"the call is not JSON ({explain_error(why)})")], start
        calls += to_calls(value)
        following = NEXT_OBJECT.match(text, end)
        if not following:
            return calls, end
        start = following.end()


def _parse_named(name: str, text: str, start: int) -> Parsed:
    """Parse the JSON at `start` as the arguments of tool `name`. Returns the call and its end offset.

    The call has a `problem` if the JSON is invalid.
    """
    try:
        value, end = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as why:
        return [Call(name, problem=f"the arguments are not JSON ({explain_error(why)})")], start
    return [make_call(name, value)], end


def _parse_function(text: str, opening: re.Match[str]) -> Parsed:
    """Parse `<function=NAME>` or `<invoke name="NAME">` with JSON or XML parameters.

    Returns the call and its end offset.
    """
    start = _skip_blanks(text, opening.end())
    if text.startswith("{", start):
        return _parse_named(opening[1], text, start)
    following = formats.FUNCTION.search(text, start)
    region = text[start : following.start() if following else len(text)]
    closed = formats.END_OF_FUNCTION.search(region)
    body = region[: closed.start()] if closed else region.partition("</tool_call>")[0]
    return [_make_xml_call(opening[1], body)], start + len(body)


def _make_xml_call(name: str, body: str) -> Call:
    """Return a call of tool `name` with the XML parameters in `body` as texts, or with a `problem` if malformed."""
    before, *rest = formats.PARAMETER.split(body)
    if before.strip():
        return Call(name, problem="write its parameters as <parameter=NAME>value</parameter>")
    values = (formats.END_OF_PARAMETER.split(value, maxsplit=1)[0] for value in rest[1::2])
    pairs = [(key, value.removeprefix("\n").removesuffix("\n")) for key, value in zip(rest[::2], values, strict=True)]
    try:
        return Call(name, to_unique_dict(pairs), as_text=True)
    except ValueError as why:
        return Call(name, problem=str(why))


def _parse_line(text: str, opening: re.Match[str]) -> Parsed:
    """Parse the rest of the line as Python calls. Returns the calls, if any, and the offset of the line's end."""
    end = text.find("\n", opening.end())
    end = end if end >= 0 else len(text)
    return list(_parse_python_calls(text[opening.end() : end].strip())), end


def _parse_python_calls(text: str) -> Iterator[Call]:
    """Yield the calls in a text that is a Python call or a list of Python calls; nothing for any other text."""
    if PYTHON.fullmatch(text):
        yield from map(from_python_call, _find_call_nodes(text))


def _find_call_nodes(text: str) -> list[ast.Call]:
    try:
        body = parse_python(text).body
    except ValueError:
        return []
    values = [node.value for node in body if isinstance(node, ast.Expr)]
    nodes = [node for value in values for node in (value.elts if isinstance(value, ast.List) else [value])]
    calls = [node for node in nodes if isinstance(node, ast.Call) and find_tool_name(node.func)]
    return calls if len(calls) == len(nodes) and len(values) == len(body) else []
