"""Formats in which models write tool calls: one row of `FORMATS` each, with a writer and a reader.

Reading never raises: the text of a model is untrusted and bounded in length, number of calls, depth and numbers. A
call that cannot be read gives a one-line reason, which is shown to the model. Calls inside the thought that opens a
reply are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agents.errors import ChatError
from agents.tool_values import NAME, Definition, convert_arguments, parse_python_calls
from games.untrusted_json import DECODER, MAX_DEPTH, is_too_deep

MAX_CHARACTERS = 20_000
"""Characters of a reply in which calls are read; the rest is speech."""
MAX_CALLS = 16
MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
THOUGHT, AFTER_THOUGHT = "<think>", "</think>"
USAGE = 'a call is {"name": "…", "arguments": {…}}'


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool with named arguments, which are JSON values. `id` is unique within its reply."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolResult:
    """Text that a tool answered to the call `id`. Some templates also print the tool's `name`."""

    id: str
    text: str
    name: str = ""


class Reading(NamedTuple):
    """Parsed reply: speech around the calls, readable calls in order, and the problem of the first unreadable call."""

    speech: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    """Empty if all calls are readable."""


Pieces = list[tuple[str, str]]
"""Written calls as (mark, text) pairs. A mark may be a control token of its tokenizer; the text never is."""
Found = tuple[int, int, list[tuple[str, str, Any]]]
"""Start and end of a passage with calls, and (id or "", name, arguments) of each."""


class Format(NamedTuple):
    """A format of calls.

    `find` returns the first passage with calls at or after an offset, or None, and raises `_Unreadable` for a passage
    that is marked as a call but cannot be read.
    """

    write: Callable[[Sequence[ToolCall]], Pieces]
    find: Callable[[str, int], Found | None]
    marks: tuple[str, ...] = ()
    """Texts that may be control tokens of a tokenizer."""
    typed: bool = True
    """Whether arguments keep their types. If not, they are read as texts and converted by the tool's definition."""


class _Unreadable(Exception):
    """Raised for a passage that is marked as a call but cannot be read; `start` and `end` are its offsets."""

    def __init__(self, reason: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.start, self.end = start, end


def make_call_id(number: int) -> str:
    """Return the id of the call with this number: nine letters and digits, as Mistral's templates demand."""
    return f"call{number % 100_000:05d}"


def write_calls(format: str, calls: Sequence[ToolCall]) -> Pieces:
    """Return calls as marks and texts in a format. Raises ChatError if reading them would not return the same calls."""
    pieces = FORMATS[format].write(calls)
    speech, parsed, problem = read_calls(format, join_pieces(pieces))
    names, expected = ([(call.name, list(call.arguments)) for call in each] for each in (parsed, calls))
    ids = (call.id for call in calls)
    same = names == expected and FORMATS[format].write([replace(call, id=next(ids)) for call in parsed]) == pieces
    if speech or problem or not same:
        reason = problem or "ambiguous text"
        raise ChatError(f"a call of {calls[0].name[:64]!r} cannot be written as {format}: {reason}")
    return pieces


def join_pieces(pieces: Pieces) -> str:
    """Return written calls as one text."""
    return "".join(mark + text for mark, text in pieces)


def read_calls(format: str, text: str, tools: Sequence[Definition] = (), first: int = 0) -> Reading:
    """Read a model's reply in a format; never raises.

    `tools` convert the arguments of formats without types. Calls without a usable id are numbered from `first`.
    """
    reader, calls, problem = FORMATS[format], list[ToolCall](), ""
    at, end = _skip_thought(text), min(len(text), MAX_CHARACTERS)
    speech = [text[:at]]
    for _ in range(MAX_CALLS + 1):
        try:
            found = reader.find(text[:end], at) if at < end else None
        except _Unreadable as why:
            found, problem = (why.start, why.end, []), problem or str(why)
        if found is None:
            break
        start, after, passage = found
        speech.append(text[at:start])
        at = max(after, at + 1)
        for call_id, name, arguments in passage:
            values = arguments if reader.typed else convert_arguments(name, arguments, tools)
            calls.append(ToolCall(call_id or make_call_id(first + len(calls)), name, values))
    if len(calls) > MAX_CALLS:
        problem = problem or f"at most {MAX_CALLS} calls are read in one reply"
    speech.append(text[at:])
    return Reading("\n".join(part.strip() for part in speech if part.strip()), tuple(calls[:MAX_CALLS]), problem)


def _skip_thought(text: str) -> int:
    """Return the offset after the thought that opens a reply; 0 without one. Many templates open it in the prompt."""
    closed = text.find(AFTER_THOUGHT)
    if closed >= 0:
        return closed + len(AFTER_THOUGHT)
    return len(text) if text.lstrip().startswith(THOUGHT) else 0


# -- JSON in marks: Hermes, Qwen 2.5, Qwen 3; Mistral; Llama ----------------------------------------------------------


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_hermes(calls: Sequence[ToolCall]) -> Pieces:
    pieces: Pieces = []
    for call in calls:
        pieces.append(("<tool_call>", f'\n{{"name": "{call.name}", "arguments": {_dump_json(call.arguments)}}}\n'))
        pieces.append(("</tool_call>", "\n"))
    return [*pieces[:-1], (pieces[-1][0], "")]


def _find_hermes(text: str, at: int) -> Found | None:
    start = text.find("<tool_call>", at)
    if start < 0:
        return None
    value, end = _decode(text, start, start + len("<tool_call>"), "</tool_call>")
    closed = _skip_blanks(text, end)
    if not text.startswith("</tool_call>", closed):
        raise _Unreadable("the call does not end in </tool_call>", start, closed)
    return start, closed + len("</tool_call>"), [_parse_call(value, start, closed)]


def _write_mistral(calls: Sequence[ToolCall]) -> Pieces:
    if not all(MISTRAL_ID.fullmatch(call.id) for call in calls):
        raise ChatError("the id of a call has to be nine letters and digits")
    entries = (_dump_json({"name": call.name, "arguments": call.arguments, "id": call.id}) for call in calls)
    return [("[TOOL_CALLS]", f" [{', '.join(entries)}]")]


def _find_mistral(text: str, at: int) -> Found | None:
    start = text.find("[TOOL_CALLS]", at)
    if start < 0:
        return None
    value, end = _decode(text, start, start + len("[TOOL_CALLS]"), "[TOOL_CALLS]")
    entries = value if isinstance(value, list) else [value]
    return start, end, [_parse_call(entry, start, end) for entry in entries]


LLAMA_CALL = re.compile(
    r'(?:<\|python_tag\|>|^|;)[ \t]*(?=\{\s{0,20}"(?:name|parameters|type)"\s{0,20}:)', re.MULTILINE
)


def _write_llama(calls: Sequence[ToolCall]) -> Pieces:
    texts = (f'{{"name": "{call.name}", "parameters": {_dump_json(call.arguments)}}}' for call in calls)
    return [("", "; ".join(texts))]


def _find_llama(text: str, at: int) -> Found | None:
    opened = LLAMA_CALL.search(text, at)
    if not opened:
        return None
    start = opened.start()
    value, end = _decode(text, start, opened.end(), "\n")
    return start, end, [_parse_call(value, start, end, "parameters")]


def _parse_call(value: Any, start: int, end: int, key: str = "arguments") -> tuple[str, str, Any]:
    """Return (id, name, arguments) of a decoded JSON call, whose arguments may be their JSON text."""
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str):
        raise _Unreadable(USAGE.replace("arguments", key), start, end)
    arguments = value.get(key, value.get("arguments", value.get("parameters", {})))
    if isinstance(arguments, str):
        arguments, _ = _decode(arguments, start, 0, "")
    if not isinstance(arguments, dict) or not NAME.fullmatch(name):
        raise _Unreadable(USAGE.replace("arguments", key), start, end)
    if is_too_deep(arguments):
        raise _Unreadable(f"the arguments are nested more than {MAX_DEPTH} deep", start, end)
    call_id = value.get("id")
    return call_id if isinstance(call_id, str) and MISTRAL_ID.fullmatch(call_id) else "", name, arguments


def _decode(text: str, start: int, at: int, closing: str) -> tuple[Any, int]:
    """Return the JSON value after blanks at an offset, and its end. An unreadable passage ends at `closing`."""
    begin = _skip_blanks(text, at)
    try:
        return DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else getattr(error, "msg", str(error))
        end = text.find(closing, at) if closing else -1
        end = end + len(closing) if end >= 0 else len(text)
        raise _Unreadable(f"the call is not JSON ({reason})", start, end) from None


def _skip_blanks(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


# -- XML parameters: Qwen 3 Coder, Qwen 3.5 ---------------------------------------------------------------------------

FUNCTION = re.compile(r"\s{0,20}<function=([^>\n]{1,64})>\n?")
PARAMETER = re.compile(r"\s{0,20}<parameter=([^>\n]{1,200})>\n?")
END_OF_PARAMETER = re.compile(r"\n?</parameter>(?=\s{0,20}(?:<parameter=|</function>\s{0,20}</tool_call>))")
END_OF_FUNCTION = re.compile(r"\s{0,20}</function>\s{0,20}</tool_call>")


def _write_xml(calls: Sequence[ToolCall]) -> Pieces:
    pieces: Pieces = []
    for call in calls:
        values = ((key, _write_text(value)) for key, value in call.arguments.items())
        body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)
        pieces.append(("<tool_call>", f"\n<function={call.name}>\n{body}</function>\n"))
        pieces.append(("</tool_call>", "\n"))
    return [*pieces[:-1], (pieces[-1][0], "")]


def _write_text(value: Any) -> str:
    return _dump_json(value) if isinstance(value, Mapping | list) else str(value)


def _find_xml(text: str, at: int) -> Found | None:
    start = text.find("<tool_call>", at)
    if start < 0:
        return None
    following = text.find("<tool_call>", start + 1)
    last = following if following >= 0 else len(text)
    opened = FUNCTION.match(text, start + len("<tool_call>"))
    if not opened or not NAME.fullmatch(opened[1]):
        raise _Unreadable("a call begins with <function=NAME>", start, last)
    values: dict[str, str] = {}
    place = opened.end()
    while parameter := PARAMETER.match(text, place):
        closing = END_OF_PARAMETER.search(text, parameter.end())
        if not closing:
            raise _Unreadable(f"parameter {parameter[1][:64]} does not end in </parameter>", start, last)
        if parameter[1] in values:
            raise _Unreadable(f"parameter {parameter[1][:64]} is given twice", start, last)
        values[parameter[1]] = text[parameter.end() : closing.start()]
        place = closing.end()
    closed = END_OF_FUNCTION.match(text, place)
    if not closed:
        raise _Unreadable("a call ends in </function> and </tool_call>", start, last)
    return start, closed.end(), [("", opened[1], values)]


# -- calls as in Python: plain, one per line, or as Hermes writes them; LFM2, a list in marks -------------------------

PLAIN_CALL = re.compile(r"^[ \t]*([^\W\d]\w{0,63})\((.*)\)[ \t]*$", re.MULTILINE)
LFM2_CALLS = re.compile(r"<\|tool_call_start\|>(?:(.*?)<\|tool_call_end\|>|.*)", re.DOTALL)
LFM2_ESCAPES = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r"})


def _write_plain(calls: Sequence[ToolCall]) -> Pieces:
    return [("", "\n".join(_write_python(call, _write_literal) for call in calls))]


def _write_lfm2(calls: Sequence[ToolCall]) -> Pieces:
    texts = (_write_python(call, _write_lfm2_value) for call in calls)
    return [("<|tool_call_start|>", f"[{', '.join(texts)}]"), ("<|tool_call_end|>", "")]


def _write_python(call: ToolCall, write_value: Callable[[Any], str]) -> str:
    return f"{call.name}({', '.join(f'{key}={write_value(value)}' for key, value in call.arguments.items())})"


def _write_literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_write_literal, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_write_literal(key)}: {_write_literal(entry)}' for key, entry in value.items())}}}"
    return _dump_json(value) if isinstance(value, str) else repr(value)


def _write_lfm2_value(value: Any) -> str:
    return f"'{value.translate(LFM2_ESCAPES)}'" if isinstance(value, str) else _write_text(value)


def _find_plain(text: str, at: int) -> Found | None:
    marked = text.find("<tool_call>", at)
    line = next(_find_plain_lines(text, at), None)
    if line and (marked < 0 or line[0] < marked):
        return line
    return _find_hermes(text, at) if marked >= 0 else None


def _find_plain_lines(text: str, at: int) -> Iterator[Found]:
    """Yield lines that are a call with named literal arguments. Other lines are speech, even if similar to a call."""
    for found in PLAIN_CALL.finditer(text, at):
        try:
            yield found.start(), found.end(), [("", *call) for call in parse_python_calls(found[0])]
        except ValueError:
            continue


def _find_lfm2(text: str, at: int) -> Found | None:
    found = LFM2_CALLS.search(text, at)
    if not found:
        return None
    try:
        return *found.span(), [("", *call) for call in parse_python_calls(found[1] or "")]
    except ValueError:
        raise _Unreadable("calls are [name(key=value), …], then <|tool_call_end|>", *found.span()) from None


# -- the table --------------------------------------------------------------------------------------------------------

TAGS = ("<tool_call>", "</tool_call>")
FORMATS = {
    "hermes": Format(_write_hermes, _find_hermes, TAGS),
    "qwen_xml": Format(_write_xml, _find_xml, TAGS, typed=False),
    "llama": Format(_write_llama, _find_llama, ("<|python_tag|>",)),
    "mistral": Format(_write_mistral, _find_mistral, ("[TOOL_CALLS]",)),
    "lfm2": Format(_write_lfm2, _find_lfm2, ("<|tool_call_start|>", "<|tool_call_end|>")),
    "plain": Format(_write_plain, _find_plain, TAGS),
}
