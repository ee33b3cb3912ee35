"""Messages of a conversation in OpenAI's format, parsed from untrusted JSON to one form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.chat_images import Content, join_parts
from agents.chat_images import as_text as text_of
from agents.image_parts import ImageParts
from agents.tool_formats import ToolCall
from agents.tool_values import NAME, Definition
from games.contracts import ContentPart, Image
from games.untrusted_json import DECODER, is_too_deep

MOST_MESSAGES, MOST_TOOLS = 4096, 128
TOOLS_LENGTH = 100_000
"""Maximum characters of all tool definitions as JSON."""
THOUGHT_TAG = re.compile(r"<think\s[^<>]{0,500}>")


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
    name: str = field(default="", compare=False)
    """In a tool's message: name of the tool, if the message says it."""
    parts: tuple[ContentPart, ...] = ()
    """Texts and images in order, if there are images; `text` then has placeholders for them."""
    compared: str = field(init=False, repr=False)
    """Text by which messages are compared."""

    @property
    def content(self) -> Content:
        """Text of the message, or texts and images in order."""
        return self.parts or self.text

    def __post_init__(self) -> None:
        own = self.role == "assistant"
        compared = "".join(THOUGHT_TAG.sub("<think>", self.text).split()) if own else self.text
        object.__setattr__(self, "compared", compared)


def parse_message(entry: Any, place: str, images: ImageParts | None = None) -> ChatMessage:
    """Return one message of chat completions. Raises Refused, which names `place`, if it is malformed.

    `images` reads the images of a user's message; without it they are refused.
    """
    if not isinstance(entry, dict):
        raise Refused(f"{place}: expected an object", param="messages")
    role, content = entry.get("role"), entry.get("content")
    if images and role != "user" and has_images(content):
        raise Refused(f"{place}.content: only a user's message may have images", param=f"{place}.content")
    read = parse_content(content, f"{place}.content", images)
    text, parts = text_of(read), () if isinstance(read, str) else tuple(read)
    if role in ("system", "developer"):
        return ChatMessage("system", text)
    if role == "user":
        return ChatMessage("user", text, parts=parts)
    if role == "tool":
        call_id = as_text(entry.get("tool_call_id"), f"{place}.tool_call_id")
        name = entry.get("name")
        return ChatMessage("tool", text, call_id=call_id, name=name if isinstance(name, str) else "")
    if role != "assistant":
        raise Refused(f"{place}.role: unknown role {str(role)[:40]!r}", param="messages")
    calls = []
    for j, call in enumerate(as_list(entry.get("tool_calls") or [], f"{place}.tool_calls", least=0)):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise Refused(f"{place}.tool_calls[{j}]: only calls of functions are supported", param="messages")
        calls.append(parse_call(call.get("id"), function, f"{place}.tool_calls[{j}]"))
    return ChatMessage("assistant", text, tuple(calls))


def parse_call(id: Any, function: Mapping[str, Any], place: str) -> ToolCall:
    """Return a call, with its arguments as an object or as JSON text. Raises Refused if it is malformed."""
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


IMAGES = ("image_url", "input_image", "image")
"""Types of parts that are images; `image` is that of data sets."""


def has_images(content: Any) -> bool:
    """Return True if a message's content has parts that are images."""
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") in IMAGES for p in content)


def parse_content(content: Any, place: str, images: ImageParts | None = None) -> Content:
    """Return a message's content as one text or, with images, as parts. Null is "".

    Raises Refused for other parts, and for images that are malformed or, without `images`, for all.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[ContentPart] = []
    for part in as_list(content, place, least=0):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in IMAGES:
            parts.append(_image(part, place, images))
        elif kind not in ("text", "input_text", "output_text"):
            raise Refused(f"{place}: parts of type {str(kind)[:40]!r} are not supported", param=place)
        else:
            parts.append(as_text(part.get("text"), f"{place}.text"))
    return join_parts(parts)


def _image(part: dict[str, Any], place: str, images: ImageParts | None) -> Image:
    if images is None:
        raise Refused(f"{place}: the policy cannot see images", code="unsupported_value", param=place)
    try:
        return images.read(part)
    except ValueError as error:
        raise Refused(f"{place}: {error}", code="invalid_image", param=place) from None


def parse_tools(given: Any, flat: bool = False) -> tuple[Definition, ...]:
    """Return tool definitions as in chat completions; those of responses are `flat`. Raises Refused if malformed."""
    listed = as_list(given or [], "tools", least=0)
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
        description = as_text(function.get("description") or "", f"tools[{i}].description")
        defined = {"name": name, "description": description, "parameters": parameters}
        tools.append({"type": "function", "function": defined})
    return tuple(tools)


def as_list(value: Any, place: str, least: int = 1) -> list[Any]:
    """Return the value. Raises Refused unless it is a list of at least `least` and at most `MOST_MESSAGES` entries."""
    if not isinstance(value, list) or not least <= len(value) <= MOST_MESSAGES:
        raise Refused(f"{place}: expected a list of {least} to {MOST_MESSAGES} entries", param=place)
    return value


def as_text(value: Any, place: str) -> str:
    """Return the value. Raises Refused unless it is a string."""
    if not isinstance(value, str):
        raise Refused(f"{place}: expected a text", param=place)
    return value
