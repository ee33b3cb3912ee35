"""Messages of a conversation in OpenAI's format, parsed from untrusted JSON to one form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.chat_images import Content, as_text, join_parts
from agents.image_parts import ImageParts
from agents.tool_formats import ToolCall
from agents.tool_values import NAME, Definition
from games.contracts import ContentPart, Image
from games.untrusted_json import DECODER, is_too_deep

MAX_MESSAGES, MAX_TOOLS = 4096, 128
TOOLS_LENGTH = 100_000
"""Maximum characters of all tool definitions as JSON."""
COMMON_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "frequency_penalty": (None, 0),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "presence_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", "none"),
    "top_logprobs": (None, 0),
}
"""Parameters that no server of ours supports, each with the values that are accepted because they have no effect."""
THOUGHT_TAG = re.compile(r"<think\s[^<>]{0,500}>")


class RequestError(Exception):
    """Raised to refuse a request, with the HTTP status and the code and parameter of an OpenAI API error."""

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


@dataclass(frozen=True)
class ChatMessage:
    """Message of a conversation.

    The comparison of assistant messages ignores blanks, the JSON spelling of arguments and attributes of <think> tags,
    because clients rewrite these.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str = field(default="", compare=False)
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """In a tool's message: id of the call that it answers."""
    name: str = field(default="", compare=False)
    """In a tool's message: name of the tool, if the message has it."""
    parts: tuple[ContentPart, ...] = ()
    """Texts and images in order, if there are images; `text` then has placeholders for them."""
    compared: str = field(init=False, repr=False)
    """Text by which messages are compared."""

    @property
    def content(self) -> Content:
        """Text of the message, or texts and images in order."""
        return self.parts or self.text

    def __post_init__(self) -> None:
        is_reply = self.role == "assistant"
        compared = "".join(THOUGHT_TAG.sub("<think>", self.text).split()) if is_reply else self.text
        object.__setattr__(self, "compared", compared)


def parse_message(entry: Any, path: str, images: ImageParts | None = None) -> ChatMessage:
    """Parse one message of a chat completions request. Raises RequestError, naming `path`, if it is malformed.

    `path` is the message's place in the request, such as `messages[3]`. `images` reads the images of a user's message;
    without it they are refused.
    """
    if not isinstance(entry, dict):
        raise RequestError(f"{path}: expected an object", param="messages")
    role, content = entry.get("role"), entry.get("content")
    if images and role != "user" and has_images(content):
        raise RequestError(f"{path}.content: only a user's message may have images", param=f"{path}.content")
    read = parse_content(content, f"{path}.content", images)
    text, parts = as_text(read), () if isinstance(read, str) else tuple(read)
    if role in ("system", "developer"):
        return ChatMessage("system", text)
    if role == "user":
        return ChatMessage("user", text, parts=parts)
    if role == "tool":
        call_id = require_text(entry.get("tool_call_id"), f"{path}.tool_call_id")
        name = entry.get("name")
        return ChatMessage("tool", text, call_id=call_id, name=name if isinstance(name, str) else "")
    if role != "assistant":
        raise RequestError(f"{path}.role: unknown role {str(role)[:40]!r}", param="messages")
    calls = []
    for j, call in enumerate(require_list(entry.get("tool_calls") or [], f"{path}.tool_calls", min_length=0)):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise RequestError(f"{path}.tool_calls[{j}]: only calls of functions are supported", param="messages")
        calls.append(parse_call(call.get("id"), function, f"{path}.tool_calls[{j}]"))
    return ChatMessage("assistant", text, tuple(calls))


def parse_call(id: Any, function: Mapping[str, Any], path: str) -> ToolCall:
    """Parse a call whose arguments are an object or JSON text. Raises RequestError if it is malformed."""
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(id, str) or not 0 < len(id) <= 200:
        raise RequestError(f"{path}.id: expected a text", param="messages")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestError(f"{path}.name: expected a function's name", param="messages")
    try:
        values = DECODER.decode(arguments or "{}") if isinstance(arguments, str | None) else arguments
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or is_too_deep(values):
        raise RequestError(f"{path}.arguments: expected a JSON object as text", param="messages")
    return ToolCall(id, name, values)


IMAGE_TYPES = ("image_url", "input_image", "image")
"""Part types of images; `image` occurs in data sets only."""


def has_images(content: Any) -> bool:
    """Return True if a message's content has parts that are images."""
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") in IMAGE_TYPES for p in content)


def parse_content(content: Any, path: str, images: ImageParts | None = None) -> Content:
    """Return a message's content as one text or, with images, as parts. Null is "".

    Raises RequestError for parts of other types and for malformed images, or any image without `images`.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[ContentPart] = []
    for part in require_list(content, path, min_length=0):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in IMAGE_TYPES:
            parts.append(_read_image(part, path, images))
        elif kind not in ("text", "input_text", "output_text"):
            raise RequestError(f"{path}: parts of type {str(kind)[:40]!r} are not supported", param=path)
        else:
            parts.append(require_text(part.get("text"), f"{path}.text"))
    return join_parts(parts)


def _read_image(part: dict[str, Any], path: str, images: ImageParts | None) -> Image:
    if images is None:
        raise RequestError(f"{path}: the policy cannot see images", code="unsupported_value", param=path)
    try:
        return images.read(part)
    except ValueError as error:
        raise RequestError(f"{path}: {error}", code="invalid_image", param=path) from None


def parse_tools(tools_json: Any, flat: bool = False) -> tuple[Definition, ...]:
    """Return tool definitions in the form of chat completions. Raises RequestError if they are malformed.

    `flat` definitions have the form of the Responses API, without a field `function`.
    """
    listed = require_list(tools_json or [], "tools", min_length=0)
    if len(listed) > MAX_TOOLS or len(json.dumps(listed)) > TOOLS_LENGTH:
        raise RequestError(f"tools: at most {MAX_TOOLS} tools of {TOOLS_LENGTH:,} characters in all", param="tools")
    tools = []
    for i, entry in enumerate(listed):
        function = entry if flat else entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(entry, dict) or entry.get("type") != "function":
            raise RequestError(f"tools[{i}]: only functions are supported", param="tools")
        name, parameters = function.get("name"), function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(name, str) or not NAME.fullmatch(name) or not isinstance(parameters, dict):
            raise RequestError(f"tools[{i}]: expected a function with `name` and `parameters`", param="tools")
        if not isinstance(parameters.get("properties", {}), dict):
            raise RequestError(f"tools[{i}].parameters.properties: expected an object", param="tools")
        description = require_text(function.get("description") or "", f"tools[{i}].description")
        defined = {"name": name, "description": description, "parameters": parameters}
        tools.append({"type": "function", "function": defined})
    return tuple(tools)


def require_list(value: Any, path: str, min_length: int = 1) -> list[Any]:
    """Return the value. Raises RequestError unless it is a list of `min_length` to `MAX_MESSAGES` entries."""
    if not isinstance(value, list) or not min_length <= len(value) <= MAX_MESSAGES:
        raise RequestError(f"{path}: expected a list of {min_length} to {MAX_MESSAGES} entries", param=path)
    return value


def require_text(value: Any, path: str) -> str:
    """Return the value. Raises RequestError unless it is a string."""
    if not isinstance(value, str):
        raise RequestError(f"{path}: expected a text", param=path)
    return value
