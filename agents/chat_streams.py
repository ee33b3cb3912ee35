"""Encode chats and texts of data sets as streams, as if a policy had read the contexts and sampled the replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agents.chat import ChatFrame
from agents.chat_messages import ChatMessage, RequestError, parse_message, parse_tools, require_list
from agents.chat_writing import find_image_spans, write_chat
from agents.errors import ChatError
from agents.image_parts import ImageParts
from agents.stream import Stream
from agents.tool_formats import make_call_id
from agents.tool_values import Definition


class ChatRowError(ValueError):
    """Raised for a chat that cannot be encoded; the message names the field, such as `messages[3].role`."""


def encode_chat(
    frame: ChatFrame, messages: Any, tools: Any = None, opening: int = 0, folder: Path | None = None
) -> Stream:
    """Encode a chat in OpenAI's format as the stream of a policy that wrote the assistant's messages.

    The mask covers each reply with the token that ends it, except in the first `opening` messages, which are context.
    Tool calls are written in the model's own format; `tools` are definitions, or JSON text of them. Turn n is the n-th
    reply. Log-probabilities are 0. Images in files are read from `folder`. Raises ChatRowError for malformed messages,
    roles in an order that a policy never reads, a chat without a reply at its end, or images without vision.
    """
    images = ImageParts(folder) if frame.image else None
    parsed, definitions = parse_chat(messages, tools, images)
    encode = partial(frame.encode_reply, marks=bool(definitions))
    try:
        stream = _build_stream([*write_chat(frame, parsed, definitions, encode=encode)], parsed, opening)
        if images:
            stream.media = find_image_spans(frame, stream.ids, parsed, images.pictures.__getitem__)
        return stream
    except ChatError as error:
        raise ChatRowError(f"messages: {error}") from None


def parse_chat(
    messages: Any, tools: Any, images: ImageParts | None
) -> tuple[list[ChatMessage], tuple[Definition, ...]]:
    """Parse a chat's messages and tool definitions. Raises ChatRowError as `encode_chat` does.

    `images` reads the images and keeps their bytes; without it images are refused.
    """
    try:
        return _check_order(_parse_messages(messages, images)), _parse_definitions(tools)
    except RequestError as error:
        raise ChatRowError(str(error)) from None


def encode_completion(
    frame: ChatFrame, prompt: Any, completion: Any, tools: Any = None, folder: Path | None = None
) -> Stream:
    """Encode a prompt and its completion as a stream whose mask covers the completion's replies, as one turn.

    Both are texts or lists of messages, as for `join_messages`. Raises ChatRowError as `encode_chat` does.
    """
    messages, opening = join_messages(prompt, completion)
    stream = encode_chat(frame, messages, tools, opening, folder)
    stream.turns = [min(turn, 0) for turn in stream.turns]
    return stream


def join_messages(prompt: Any, completion: Any) -> tuple[list[Any], int]:
    """Return the messages of a prompt followed by those of its completion, and the number of the prompt's messages.

    A prompt given as text is a message of the user, a completion given as text one of the assistant. Raises
    ChatRowError for anything but texts and lists that are not empty.
    """
    prompt_messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    completion_messages = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
    for name, listed in (("prompt", prompt_messages), ("completion", completion_messages)):
        if not isinstance(listed, list) or not listed:
            raise ChatRowError(f"{name}: expected a text or a list of messages")
    return [*prompt_messages, *completion_messages], len(prompt_messages)


def encode_text(frame: ChatFrame, text: Any, max_tokens: int) -> list[Stream]:
    """Encode a plain text as streams of at most `max_tokens` tokens whose mask covers all tokens but the first.

    Each stream begins with the last token of the one before, so that every token is predicted once. Raises
    ChatRowError unless `text` is a string that is not empty.
    """
    if not isinstance(text, str) or not text:
        raise ChatRowError("text: expected a text")
    ids = frame.encode_document(text)
    streams = []
    for start in range(0, len(ids) - 1, max_tokens - 1):
        stream, part = Stream(), ids[start : start + max_tokens]
        stream.observe(part[:1])
        stream.append_sampled(part[1:], [0.0] * (len(part) - 1), 0)
        streams.append(stream)
    return streams


def _build_stream(pieces: Sequence[tuple[list[int], bool]], messages: Sequence[ChatMessage], opening: int) -> Stream:
    """Return the pieces up to the last reply as a stream."""
    numbers = [i for i, message in enumerate(messages) if message.role == "assistant"]
    stream, turn = Stream(), 0
    for ids, is_reply in pieces:
        if is_reply and numbers[turn] >= opening:
            stream.append_sampled(ids, [0.0] * len(ids), turn)
        elif turn < len(numbers):
            stream.observe(ids)
        turn += is_reply
    if not stream.sampled_count:
        raise ChatRowError("messages: no reply of the assistant to learn")
    return stream


def _parse_definitions(tools: Any) -> tuple[Definition, ...]:
    """Return the definitions unchanged, or parsed from JSON text. Raises RequestError if they are malformed."""
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except (ValueError, RecursionError):
            raise RequestError("tools: expected JSON") from None
    parse_tools(tools)
    return tuple(tools or ())


def _parse_messages(messages: Any, images: ImageParts | None) -> Iterator[ChatMessage]:
    """Parse messages. Calls and results without ids are numbered and paired in order. Raises RequestError."""
    pending: list[str] = []
    call_count = 0
    for i, entry in enumerate(require_list(messages, "messages")):
        if isinstance(entry, Mapping) and entry.get("role") == "tool" and not entry.get("tool_call_id"):
            entry = {**entry, "tool_call_id": pending[0] if pending else make_call_id(call_count)}
        if isinstance(entry, Mapping) and isinstance(calls := entry.get("tool_calls"), list):
            numbered = ({"id": None, **call} if isinstance(call, dict) else call for call in calls)
            calls = [
                {**call, "id": call["id"] or make_call_id(call_count + j)} if isinstance(call, dict) else call
                for j, call in enumerate(numbered)
            ]
            entry = {**entry, "tool_calls": calls}
        message = parse_message(entry, f"messages[{i}]", images)
        if message.role == "assistant":
            pending = [call.id for call in message.calls]
            call_count += len(pending)
        elif message.call_id in pending:
            pending.remove(message.call_id)
        yield message


def _check_order(messages: Iterator[ChatMessage]) -> list[ChatMessage]:
    """Return the messages. Raises RequestError unless a policy can have read and written them in this order."""
    checked: list[ChatMessage] = []
    for i, message in enumerate(messages):
        last = checked[-1].role if checked else "system"
        if message.role == "system" and i:
            raise RequestError(f"messages[{i}].role: only the first message may be the system's")
        if message.role == "assistant" and last in ("assistant", "system"):
            raise RequestError(f"messages[{i}].role: a reply must follow a message of the user or a tool")
        if message.role == "tool" and last == "user":
            raise RequestError(f"messages[{i}].role: a tool's result must follow a reply or another result")
        checked.append(message)
    if not checked or checked[-1].role != "assistant":
        raise RequestError("messages: the last message must be the assistant's")
    return checked
