"""Cut tool turns out of a chat template: where it puts definitions, and what it puts around calls and results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from agents.chat_parts import BRIDGE, REPLIES, SYSTEM, USERS, TemplateParts, split_at
from agents.chat_template import CLOCK, Renderings, TemplateRefusal, time_variables
from agents.errors import ChatError
from agents.tool_formats import FORMATS, ToolCall, ToolResult, join_pieces, read_calls, write_calls
from agents.tool_values import Definition


class ToolParts(NamedTuple):
    """Texts that a chat template puts around tool calls and results, and the format of the calls."""

    format: str
    """Name in `agents.tool_formats.FORMATS`."""
    exact: bool
    """Whether the template writes calls as our writer does, text with quotes and lists included."""
    several: bool
    """Whether the template prints several calls in one reply, as our writer does."""
    gap: str | None
    """Text between speech and the first call; None if the template drops speech beside calls."""
    result: tuple[str, ...]
    """Text before the first result, a slot ("text", "id" or "name"), text, …, and the text up to the next reply."""
    between: str
    """Text between two results."""
    user_bridge: str | None
    """Text between the last result and a user turn's head; None if the template refuses this order."""
    quoting: Literal["json", "raw", "trimmed"]
    """How a result's text is printed."""
    rewrites: bool
    """Whether the template, unlike the frame, moves definitions or changes earlier turns after another user turn."""

    def quote(self, text: str) -> str:
        """Return a result's text as the template prints it."""
        if self.quoting == "json":
            return json.dumps(text, ensure_ascii=False)
        return text.strip() if self.quoting == "trimmed" else text


class ToolChat(NamedTuple):
    """A conversation with tools to render with a chat template; `messages` and `tools` are JSON texts."""

    messages: str
    tools: str
    prompt: bool = True
    clock: datetime = CLOCK

    def variables(self) -> dict[str, Any]:
        """Return the variables for the chat template."""
        conversation = {"messages": json.loads(self.messages), "tools": json.loads(self.tools)}
        return {**conversation, "add_generation_prompt": self.prompt, **time_variables(self.clock)}


# -- messages as in OpenAI's API --------------------------------------------------------------------------------------


def make_call_message(speech: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Return an assistant message with calls."""
    functions = ({"name": call.name, "arguments": dict(call.arguments)} for call in calls)
    listed = [
        {"id": call.id, "type": "function", "function": function}
        for call, function in zip(calls, functions, strict=True)
    ]
    return {"role": "assistant", "content": speech, "tool_calls": listed}


def make_result_message(result: ToolResult) -> dict[str, Any]:
    """Return a message with a tool's result."""
    return {"role": "tool", "name": result.name, "tool_call_id": result.id, "content": result.text}


def make_reply_message(parts: ToolParts, text: str, tools: Sequence[Definition], first: int) -> dict[str, Any]:
    """Return a reply as a message. Its calls become `tool_calls` if the model's template then prints the same text.

    Calls are numbered from `first`.
    """
    speech, calls, problem = read_calls(parts.format, text, tools, first)
    printed = parts.exact and (parts.several or len(calls) == 1) and (parts.gap is not None or not speech)
    if calls and not problem and printed:
        calls_text = join_pieces(FORMATS[parts.format].write(calls))
        if text == (f"{speech}{parts.gap}{calls_text}" if speech else calls_text):
            return make_call_message(speech, calls)
    return {"role": "assistant", "content": text}


# -- probes -----------------------------------------------------------------------------------------------------------

TOOL_NAME, CALL_ID, SPEECH = "tOol9x", "cAl1Id0aa", "sPe9ch"
RESULTS = tuple(ToolResult(CALL_ID, f' rEs{place} "q"\nz ', TOOL_NAME) for place in (0, 1))
CALL = ToolCall(CALL_ID, TOOL_NAME, {"kEy": 'vAl "b" é <c>', "cOunt": 2})
QUOTED_CALL = ToolCall(CALL_ID, TOOL_NAME, {"kEy": "vAl's \\ b", "lIst": ["x", True]})
DEFINITION: Definition = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Look.",
        "parameters": {
            "type": "object",
            "properties": {"kEy": {"type": "string"}, "cOunt": {"type": "integer"}},
            "required": ["kEy"],
        },
    },
}
SLOTS = {TOOL_NAME: "name", CALL_ID: "id", RESULTS[0].text: "text", RESULTS[1].text: "text"}


def _make_chat(system: str, tools: Sequence[Definition], *turns: Mapping[str, Any]) -> ToolChat:
    """Return a conversation of the marker words and these turns. `system` is as in `TemplateParts`."""
    user = {"role": "user", "content": USERS[0]}
    if system == "turn":
        opening = [{"role": "system", "content": SYSTEM}, user]
    else:
        opening = [{"role": "user", "content": f"{SYSTEM}{BRIDGE}{USERS[0]}"}]
    return ToolChat(json.dumps([*opening, *turns]), json.dumps(list(tools)))


def render_definitions(
    tokenizer: Any, parts: TemplateParts, tools: Sequence[Definition], system: bool
) -> tuple[str, str]:
    """Return the texts that a template with these tools prints before the system text, and from it to the user's text.

    Without a system text (`system` is False) and without system turns in the template, the first is "". Raises
    ChatError if the template refuses the definitions.
    """
    bare = not system and parts.system != "turn"
    chat = ToolChat(json.dumps([{"role": "user", "content": USERS[0]}]), json.dumps(list(tools)))
    chat = chat if bare else _make_chat(parts.system, tools)
    try:
        rendered = Renderings(tokenizer, [chat]).text(chat)
        before, between, _ = ("", *split_at(rendered, USERS[:1])) if bare else split_at(rendered, (SYSTEM, USERS[0]))
    except TemplateRefusal as why:
        raise ChatError(f"the chat template refuses the tools' definitions ({why})") from None
    return before, between


# -- the cut ----------------------------------------------------------------------------------------------------------


class _UnsupportedTemplate(Exception):
    """Raised if a chat template does not print tool turns as the frame would compose them."""


def cut_tools(tokenizer: Any, parts: TemplateParts) -> ToolParts | None:
    """Derive the texts around tool turns from renderings of marker words, verified by further ones.

    Returns None if the template has no tool turns, changes earlier text, or writes calls in an unknown format.
    """
    user, reply = {"role": "user", "content": USERS[1]}, {"role": "assistant", "content": REPLIES[0]}
    call, (first, second) = make_call_message("", [CALL]), map(make_result_message, RESULTS)
    turns = {
        "opened": (),
        "one": (call, first),
        "two": (call, first, second),
        "asked": (call, first, user),
        "quoted": (make_call_message("", [QUOTED_CALL]), first),
        "spoken": (make_call_message(SPEECH, [CALL]), first),
        "several": (make_call_message("", [CALL, CALL]), first),
        "later": (call, first, reply, user),
        "again": (call, first, call, first),
    }
    chats = {name: _make_chat(parts.system, [DEFINITION], *added) for name, added in turns.items()}
    try:
        return _derive_parts(Renderings(tokenizer, [*chats.values()]), parts, chats)
    except (TemplateRefusal, ChatError, _UnsupportedTemplate):
        return None


def _derive_parts(rendered: Renderings, parts: TemplateParts, chats: Mapping[str, ToolChat]) -> ToolParts:
    before, between, prompt = split_at(rendered.text(chats["opened"]), (SYSTEM, USERS[0]))
    _require(prompt == parts.prompt and bool(parts.reply_tail) and TOOL_NAME in before + between)
    start = f"{before}{SYSTEM}{between}{USERS[0]}{prompt}"
    call, tail, unit = _strip_start(rendered.text(chats["one"]), start).partition(parts.reply_tail)
    format = _detect_format(call)
    quoting, pieces = _split_results(unit)
    _require(pieces.count("text") == 1)
    between_results = _find_separator(
        pieces, _split_results(_strip_start(rendered.text(chats["two"]), start + call + tail))[1]
    )
    exchange = f"{start}{call}{tail}{unit}"
    later = f"{REPLIES[0]}{parts.reply_tail}{parts.user_head}{USERS[1]}{prompt}"
    stable = _try_text(rendered, chats["later"]) == exchange + later
    _require(stable or rendered.text(chats["again"]) == f"{exchange}{call}{tail}{unit}")

    def prints(name: str, *calls: ToolCall) -> bool:
        expected = f"{start}{join_pieces(write_calls(format, calls))}{tail}"
        return (_try_text(rendered, chats[name]) or "").startswith(expected)

    return ToolParts(
        format,
        exact=join_pieces(write_calls(format, [CALL])) == call and prints("quoted", QUOTED_CALL),
        several=prints("several", CALL, CALL),
        gap=_find_gap(_try_text(rendered, chats["spoken"]), start, f"{call}{tail}{unit}"),
        result=pieces,
        between=between_results,
        user_bridge=_find_bridge(_try_text(rendered, chats["asked"]), parts, pieces),
        quoting=quoting,
        rewrites=not stable,
    )


def _require(holds: bool) -> None:
    if not holds:
        raise _UnsupportedTemplate


def _strip_start(text: str, start: str) -> str:
    """Return the text after its beginning `start`. Raises _UnsupportedTemplate if it begins otherwise."""
    _require(text.startswith(start))
    return text[len(start) :]


def _try_text(rendered: Renderings, chat: ToolChat) -> str | None:
    try:
        return rendered.text(chat)
    except TemplateRefusal:
        return None


def _detect_format(text: str) -> str:
    """Return the format in which a template printed the probe's call, maybe after the end of an empty thought.

    Raises _UnsupportedTemplate if no format reads it.
    """
    for name in FORMATS:
        speech, calls, problem = read_calls(name, text, [DEFINITION])
        same = [(call.name, call.arguments) for call in calls] == [(CALL.name, CALL.arguments)]
        if same and speech in ("", "</think>") and not problem:
            return name
    raise _UnsupportedTemplate


def _split_results(text: str) -> tuple[Literal["json", "raw", "trimmed"], tuple[str, ...]]:
    """Return the quoting of results' texts, and the alternating texts and slots of a rendering."""
    writers: dict[Literal["json", "raw", "trimmed"], Any] = {
        "json": lambda word: json.dumps(word, ensure_ascii=False), "raw": str, "trimmed": str.strip
    }  # fmt: skip
    for quoting, write in writers.items():
        if write(RESULTS[0].text) in text:
            words = {write(word) if slot == "text" else word: slot for word, slot in SLOTS.items()}
            pieces = re.split(f"({'|'.join(map(re.escape, words))})", text)
            return quoting, tuple(words.get(piece, piece) for piece in pieces)
    raise _UnsupportedTemplate


def _find_separator(single: Sequence[str], double: Sequence[str]) -> str:
    """Return the text between two results, from the pieces of a rendering with one result and of one with two.

    Raises _UnsupportedTemplate unless each of the two is printed like the single one.
    """
    middle = len(single) - 1
    _require(len(double) == 2 * len(single) - 1 and list(double[:middle]) == list(single[:-1]))
    _require(list(double[middle + 1 :]) == list(single[1:]))
    return double[middle]


def _find_gap(text: str | None, start: str, rest: str) -> str | None:
    spoken = start + SPEECH
    return text[len(spoken) : -len(rest)] if text and text.startswith(spoken) and text.endswith(rest) else None


def _find_bridge(text: str | None, parts: TemplateParts, pieces: Sequence[str]) -> str | None:
    """Return the text between a result and the head of a user turn; None if the template prints no such turn."""
    if text is None:
        return None
    *_, slot, last = _split_results(text)[1]
    end = f"{parts.user_head}{USERS[1]}{parts.prompt}"
    return last.removesuffix(end) if last.endswith(end) and slot == pieces[-2] else None
