"""Requests of agent programs: OpenAI's chat completions and responses, parsed to one form or refused as OpenAI does.

What a program sends is untrusted. Parameters that would change what is sampled are refused if they have an effect,
except for temperature and the like, which the seat's role decides so that log-probabilities are right for learning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.tool_formats import ToolCall
from agents.tool_values import NAME, Definition
from games.untrusted_json import DECODER, is_too_deep

MOST_MESSAGES, MOST_TOOLS = 4096, 128
TOOLS_LENGTH = 100_000
"""Maximum characters of all tool definitions as JSON."""
IGNORED = frozenset({
    "model", "stream", "stream_options", "temperature", "top_p", "user", "store", "metadata", "reasoning",
    "reasoning_effort", "include", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "strict", "verbosity",
})  # fmt: skip
"""Parameters without an effect on the answer's form; the seat's role decides how replies are sampled."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "background": (None, False),
    "conversation": (None,),
    "frequency_penalty": (None, 0),
    "function_call": (None, "auto"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "n": (None, 1),
    "prediction": (None,),
    "presence_penalty": (None, 0),
    "previous_response_id": (None,),
    "prompt": (None,),
    "response_format": (None, {"type": "text"}),
    "stop": (None, [], ""),
    "text": (None, {}, {"format": {"type": "text"}}),
    "tool_choice": (None, "auto", "none"),
    "top_k": (None, -1, 0),
    "top_logprobs": (None, 0),
    "truncation": (None, "disabled"),
}
"""Unsupported parameters, with the values that are accepted because they have no effect."""
THOUGHT_TAG = re.compile(r"<think\s[^<>]{0,500}>")
REMEDIES = {
    "n": "send one request for each answer, with different values of `seed`",
    "previous_response_id": "send the whole conversation as `input`",
}


class Refused(Exception):
    """Raised to refuse a request, with HTTP status, code and parameter name of the API's error."""

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


@dataclass(frozen=True)
class ChatMessage:
    """Message of a conversation. Equal messages may differ in what clients rewrite in an assistant's message.

    That is the JSON text of arguments, blanks, and attributes of the tags around thoughts.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str = field(default="", compare=False)
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """In a tool's message: id of the call that it answers."""
    compared: str = field(init=False, repr=False)
    """Text by which messages are compared."""

    def __post_init__(self) -> None:
        own = self.role == "assistant"
        compared = "".join(THOUGHT_TAG.sub("<think>", self.text).split()) if own else self.text
        object.__setattr__(self, "compared", compared)


@dataclass(frozen=True)
class Asked:
    """Parsed request for an answer to a conversation."""

    api: Literal["chat", "responses"]
    messages: tuple[ChatMessage, ...]
    tools: tuple[Definition, ...]
    max_tokens: int | None
    seed: int | None
    is_parallel: bool
    """Whether the answer may have several calls."""
    reads_calls: bool
    """Whether calls are read in the reply."""
    model: str
    streams: bool
    wants_usage: bool
    sampling: tuple[str, ...]
    """Names of the sampling parameters that were given, which the role's sampling replaces."""

    @property
    def key(self) -> str:
        """Text that is equal for a repeated request, however its JSON is written."""
        content = [
            [m.role, m.text, [[c.id, c.name, c.arguments] for c in m.calls], m.call_id] for m in self.messages
        ]  # fmt: skip
        limits = [self.max_tokens, self.seed, self.is_parallel, self.reads_calls]
        return json.dumps([content, list(self.tools), limits], sort_keys=True)


def parse(api: Literal["chat", "responses"], body: bytes) -> Asked:
    """Parse the body of a request. Raises Refused, with OpenAI's error fields, for anything that cannot be answered."""
    try:
        data = DECODER.decode(body.decode())
        json.dumps(data)  # decoding allows deeper nesting than what follows
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise Refused(f"the body is not JSON: {why}") from None
    if not isinstance(data, dict):
        raise Refused("the body is not a JSON object")
    own = {"messages", "max_tokens", "max_completion_tokens"} if api == "chat" else {"input", "instructions"}
    own |= {"tools", "seed", "parallel_tool_calls", "max_output_tokens"}
    for name, value in data.items():
        if name in NEUTRAL and value not in NEUTRAL[name]:
            remedy = f": {REMEDIES[name]}" if name in REMEDIES else ""
            raise Refused(f"'{name}' is not supported{remedy}", param=name, code="unsupported_parameter")
        if name not in own and name not in IGNORED and name not in NEUTRAL:
            shown = name[:80].encode("ascii", "replace").decode()
            raise Refused(f"unknown parameter: '{shown}'", param=shown, code="unknown_parameter")
    messages = _chat_messages(data) if api == "chat" else _response_messages(data)
    _check_order(messages)
    options = data.get("stream_options")
    limits = [_count(data, name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    return Asked(
        api=api,
        messages=tuple(messages),
        tools=_tools(data.get("tools"), flat=api == "responses"),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        seed=_integer(data, "seed"),
        is_parallel=data.get("parallel_tool_calls") is not False,
        reads_calls=data.get("tool_choice") != "none",
        model=_text(data.get("model", ""), "model")[:200],
        streams=data.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        sampling=tuple(name for name in ("temperature", "top_p") if data.get(name) is not None),
    )


# -- the messages of both APIs ----------------------------------------------------------------------------------------


def _chat_messages(data: Mapping[str, Any]) -> list[ChatMessage]:
    listed = _list(data.get("messages"), "messages")
    return [_chat_message(entry, f"messages[{i}]") for i, entry in enumerate(listed)]


def _chat_message(entry: Any, place: str) -> ChatMessage:
    if not isinstance(entry, dict):
        raise Refused(f"{place}: expected an object", param="messages")
    role, content = entry.get("role"), entry.get("content")
    text = _content(content, f"{place}.content")
    if role in ("system", "developer"):
        return ChatMessage("system", text)
    if role == "user":
        return ChatMessage("user", text)
    if role == "tool":
        return ChatMessage("tool", text, call_id=_text(entry.get("tool_call_id"), f"{place}.tool_call_id"))
    if role != "assistant":
        raise Refused(f"{place}.role: unknown role {str(role)[:40]!r}", param="messages")
    calls = []
    for j, call in enumerate(_list(entry.get("tool_calls") or [], f"{place}.tool_calls", least=0)):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise Refused(f"{place}.tool_calls[{j}]: only calls of functions are supported", param="messages")
        calls.append(_call(call.get("id"), function, f"{place}.tool_calls[{j}]"))
    return ChatMessage("assistant", text.strip(), tuple(calls))


def _response_messages(data: Mapping[str, Any]) -> list[ChatMessage]:
    given = data.get("input")
    listed = [{"role": "user", "content": given}] if isinstance(given, str) else _list(given, "input")
    instructions = data.get("instructions")
    messages = [ChatMessage("system", _text(instructions, "instructions"))] if instructions else []
    for i, item in enumerate(listed):
        place = f"input[{i}]"
        if not isinstance(item, dict):
            raise Refused(f"{place}: expected an object", param="input")
        kind = item.get("type", "message")
        if kind == "reasoning":
            continue  # made by another server: our answers have none
        if kind == "function_call":
            new = ChatMessage("assistant", calls=(_call(item.get("call_id"), item, place),))
        elif kind == "function_call_output":
            text = _content(item.get("output"), f"{place}.output")
            new = ChatMessage("tool", text, call_id=_text(item.get("call_id"), f"{place}.call_id"))
        elif kind == "message":
            new = _chat_message({"role": item.get("role"), "content": item.get("content")}, place)
        else:
            raise Refused(f"{place}.type: {str(kind)[:40]!r} is not supported", param="input")
        last = messages[-1] if messages else None
        if last and last.role == new.role == "assistant":
            parts = [text for text in (last.text, new.text) if text]
            messages[-1] = ChatMessage("assistant", "\n".join(parts), last.calls + new.calls)
        else:
            messages.append(new)
    return messages


def _call(id: Any, function: Mapping[str, Any], place: str) -> ToolCall:
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(id, str) or not 0 < len(id) <= 200:
        raise Refused(f"{place}.id: expected a text", param="messages")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Refused(f"{place}.name: expected a function's name", param="messages")
    try:
        values = DECODER.decode(arguments or "{}") if isinstance(arguments, str | None) else arguments
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or is_too_deep(values):
        raise Refused(f"{place}.arguments: expected a JSON object as text", param="messages")
    return ToolCall(id, name, values)


def _content(content: Any, place: str) -> str:
    """Return a message's content as one text. Null is "". Raises Refused for parts other than text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in _list(content, place, least=0):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "input_image"):
            raise Refused(f"{place}: the policy cannot see images", code="unsupported_value", param=place)
        if kind not in ("text", "input_text", "output_text"):
            raise Refused(f"{place}: parts of type {str(kind)[:40]!r} are not supported", param=place)
        texts.append(_text(part.get("text"), f"{place}.text"))
    return "".join(texts)


def _check_order(messages: Sequence[ChatMessage]) -> None:
    """Raise Refused unless tools answer all calls of the message before, and only those, and the last is no reply."""
    if not messages:
        raise Refused("the conversation has no messages", param="messages")
    open_calls: set[str] = set()
    for i, message in enumerate(messages):
        if message.role == "tool":
            if message.call_id not in open_calls:
                raise Refused(
                    f"messages[{i}]: a message with role 'tool' must answer a call of the assistant's message before",
                    param="messages",
                )
            open_calls.discard(message.call_id)
            continue
        if open_calls:
            missing = ", ".join(sorted(open_calls))[:200]
            raise Refused(
                f"an assistant message with 'tool_calls' must be followed by tool messages: no answer to {missing}",
                param="messages",
            )
        ids = [call.id for call in message.calls]
        if len(set(ids)) < len(ids):
            raise Refused(f"messages[{i}]: two calls have one id", param="messages")
        open_calls = set(ids)
    if open_calls or messages[-1].role == "assistant":
        raise Refused("the last message must be the user's or a tool's", param="messages")


# -- small values -----------------------------------------------------------------------------------------------------


def _tools(given: Any, flat: bool) -> tuple[Definition, ...]:
    """Return tool definitions in the form of chat completions; those of responses are `flat`."""
    listed = _list(given or [], "tools", least=0)
    if len(listed) > MOST_TOOLS or len(json.dumps(listed)) > TOOLS_LENGTH:
        raise Refused(f"tools: at most {MOST_TOOLS} tools of {TOOLS_LENGTH:,} characters in all", param="tools")
    tools = []
    for i, entry in enumerate(listed):
        function = entry if flat else entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(entry, dict) or entry.get("type") != "function":
            raise Refused(f"tools[{i}]: only functions are supported", param="tools")
        name, parameters = function.get("name"), function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(name, str) or not NAME.fullmatch(name) or not isinstance(parameters, dict):
            raise Refused(f"tools[{i}]: expected a function with `name` and `parameters`", param="tools")
        if not isinstance(parameters.get("properties", {}), dict):
            raise Refused(f"tools[{i}].parameters.properties: expected an object", param="tools")
        description = _text(function.get("description") or "", f"tools[{i}].description")
        defined = {"name": name, "description": description, "parameters": parameters}
        tools.append({"type": "function", "function": defined})
    return tuple(tools)


def _list(value: Any, place: str, least: int = 1) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= MOST_MESSAGES:
        raise Refused(f"{place}: expected a list of {least} to {MOST_MESSAGES} entries", param=place)
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{place}: expected a text", param=place)
    return value


def _integer(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Refused(f"{name}: expected an integer of 64 bits", param=name)
    return value


def _count(data: Mapping[str, Any], name: str) -> int | None:
    value = _integer(data, name)
    if value is not None and value < 1:
        raise Refused(f"{name}: expected a positive integer", param=name)
    return value
