"""Parse requests of agent programs to OpenAI's chat completions and responses, or refuse them with OpenAI's errors.

Requests are untrusted. Parameters that would change the sampling are refused if they have an effect. Temperature and
top_p are ignored instead: the seat's role sets them, so that log-probabilities are right for learning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agents.chat_images import as_text, find_images
from agents.chat_messages import (
    COMMON_NEUTRAL,
    ChatMessage,
    RequestError,
    parse_call,
    parse_content,
    parse_message,
    parse_tools,
    require_list,
    require_text,
)
from agents.image_parts import ImageParts
from agents.tool_values import Definition
from games.untrusted_json import DECODER

IGNORED = frozenset({
    "model", "stream", "stream_options", "temperature", "top_p", "user", "store", "metadata", "reasoning",
    "reasoning_effort", "include", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "strict", "verbosity",
})  # fmt: skip
"""Ignored parameters: they do not change the answer's form, or the seat's role sets them (sampling)."""
NEUTRAL = COMMON_NEUTRAL | {
    "background": (None, False),
    "conversation": (None,),
    "function_call": (None, "auto"),
    "n": (None, 1),
    "prediction": (None,),
    "previous_response_id": (None,),
    "prompt": (None,),
    "stop": (None, [], ""),
    "text": (None, {}, {"format": {"type": "text"}}),
    "top_k": (None, -1, 0),
    "truncation": (None, "disabled"),
}
"""Unsupported parameters, each with the values that are accepted because they have no effect."""
REMEDIES = {
    "n": "send one request for each answer, with different values of `seed`",
    "previous_response_id": "send the whole conversation as `input`",
}


@dataclass(frozen=True)
class AgentRequest:
    """Parsed request of an agent program for the next message of a conversation."""

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
    pictures: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Bytes of the messages' images by hash."""

    @property
    def key(self) -> str:
        """Text to recognise repetitions of a request, however their JSON is written."""
        content = [
            [m.role, m.text, [[c.id, c.name, c.arguments] for c in m.calls], m.call_id,
             [image.hash for image in find_images(m.parts)]]
            for m in self.messages
        ]  # fmt: skip
        limits = [self.max_tokens, self.seed, self.is_parallel, self.reads_calls]
        return json.dumps([content, list(self.tools), limits], sort_keys=True)


def parse(api: Literal["chat", "responses"], body: bytes, sees: bool = False) -> AgentRequest:
    """Parse the body of a request. Images are refused unless the policy `sees`.

    Raises RequestError, with OpenAI's error fields, for anything that cannot be answered.
    """
    try:
        data = DECODER.decode(body.decode())
        json.dumps(data)  # fails here for nesting that is too deep for later steps
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise RequestError(f"the body is not JSON: {reason}") from None
    if not isinstance(data, dict):
        raise RequestError("the body is not a JSON object")
    supported = {"messages", "max_tokens", "max_completion_tokens"} if api == "chat" else {"input", "instructions"}
    supported |= {"tools", "seed", "parallel_tool_calls", "max_output_tokens"}
    for name, value in data.items():
        if name in NEUTRAL and value not in NEUTRAL[name]:
            remedy = f": {REMEDIES[name]}" if name in REMEDIES else ""
            raise RequestError(f"'{name}' is not supported{remedy}", param=name, code="unsupported_parameter")
        if name not in supported and name not in IGNORED and name not in NEUTRAL:
            quoted = name[:80].encode("ascii", "replace").decode()
            raise RequestError(f"unknown parameter: '{quoted}'", param=quoted, code="unknown_parameter")
    images = ImageParts() if sees else None
    messages = _parse_chat_messages(data, images) if api == "chat" else _parse_response_messages(data, images)
    _check_order(messages)
    options = data.get("stream_options")
    limits = [_parse_count(data, name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    return AgentRequest(
        api=api,
        messages=tuple(messages),
        tools=parse_tools(data.get("tools"), flat=api == "responses"),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        seed=_parse_integer(data, "seed"),
        is_parallel=data.get("parallel_tool_calls") is not False,
        reads_calls=data.get("tool_choice") != "none",
        model=require_text(data.get("model", ""), "model")[:200],
        streams=data.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        sampling=tuple(name for name in ("temperature", "top_p") if data.get(name) is not None),
        pictures=images.pictures if images else {},
    )


# -- the messages of both APIs ----------------------------------------------------------------------------------------


def _parse_chat_messages(data: Mapping[str, Any], images: ImageParts | None) -> list[ChatMessage]:
    listed = require_list(data.get("messages"), "messages")
    return [_parse_message(entry, f"messages[{i}]", images) for i, entry in enumerate(listed)]


def _parse_message(entry: Any, place: str, images: ImageParts | None) -> ChatMessage:
    """Parse a message. A reply's text is stripped, because clients add blanks to it."""
    message = parse_message(entry, place, images)
    return replace(message, text=message.text.strip()) if message.role == "assistant" else message


def _parse_response_messages(data: Mapping[str, Any], images: ImageParts | None) -> list[ChatMessage]:
    value = data.get("input")
    items = [{"role": "user", "content": value}] if isinstance(value, str) else require_list(value, "input")
    instructions = data.get("instructions")
    messages = [ChatMessage("system", require_text(instructions, "instructions"))] if instructions else []
    for i, item in enumerate(items):
        place = f"input[{i}]"
        if not isinstance(item, dict):
            raise RequestError(f"{place}: expected an object", param="input")
        kind = item.get("type", "message")
        if kind == "reasoning":
            continue  # from another server: our answers have no such items
        if kind == "function_call":
            new = ChatMessage("assistant", calls=(parse_call(item.get("call_id"), item, place),))
        elif kind == "function_call_output":
            text = as_text(parse_content(item.get("output"), f"{place}.output"))
            new = ChatMessage("tool", text, call_id=require_text(item.get("call_id"), f"{place}.call_id"))
        elif kind == "message":
            new = _parse_message({"role": item.get("role"), "content": item.get("content")}, place, images)
        else:
            raise RequestError(f"{place}.type: {str(kind)[:40]!r} is not supported", param="input")
        last = messages[-1] if messages else None
        if last and last.role == new.role == "assistant":
            parts = [text for text in (last.text, new.text) if text]
            messages[-1] = ChatMessage("assistant", "\n".join(parts), last.calls + new.calls)
        else:
            messages.append(new)
    return messages


def _check_order(messages: Sequence[ChatMessage]) -> None:
    """Raise RequestError if the last message is a reply, or tool messages do not answer exactly the calls before."""
    if not messages:
        raise RequestError("the conversation has no messages", param="messages")
    open_calls: set[str] = set()
    for i, message in enumerate(messages):
        if message.role == "tool":
            if message.call_id not in open_calls:
                raise RequestError(
                    f"messages[{i}]: a message with role 'tool' must answer a call of the assistant's message before",
                    param="messages",
                )
            open_calls.discard(message.call_id)
            continue
        if open_calls:
            missing = ", ".join(sorted(open_calls))[:200]
            raise RequestError(
                f"an assistant message with 'tool_calls' must be followed by tool messages: no answer to {missing}",
                param="messages",
            )
        ids = [call.id for call in message.calls]
        if len(set(ids)) < len(ids):
            raise RequestError(f"messages[{i}]: two calls have one id", param="messages")
        open_calls = set(ids)
    if open_calls or messages[-1].role == "assistant":
        raise RequestError("the last message must be the user's or a tool's", param="messages")


# -- small values -----------------------------------------------------------------------------------------------------


def _parse_integer(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise RequestError(f"{name}: expected an integer of 64 bits", param=name)
    return value


def _parse_count(data: Mapping[str, Any], name: str) -> int | None:
    value = _parse_integer(data, name)
    if value is not None and value < 1:
        raise RequestError(f"{name}: expected a positive integer", param=name)
    return value
