"""Convert given messages to the token ids that a policy would have read and, in its replies, sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from agents.chat import ChatFrame
from agents.chat_images import find_images, find_spans, join_parts
from agents.chat_messages import ChatMessage
from agents.stream import ImageReader, MediaSpan
from agents.tool_formats import ToolResult
from agents.tool_values import Definition

PLAIN_USAGE = """Tools, called by a line of their own such as name(argument="value"):"""
Piece = tuple[list[int], bool]
"""Token ids of a part of a conversation, and whether this is a reply with the token that ends it."""


def write_chat(
    frame: ChatFrame,
    messages: Sequence[ChatMessage],
    tools: Sequence[Definition] = (),
    after: ChatMessage | None = None,
    encode: Callable[[str], list[int]] | None = None,
    examples: Sequence[tuple[str, str]] = (),
) -> Iterator[Piece]:
    """Yield the pieces of a conversation. If it does not end with a reply, the last piece ends with a reply's head.

    Leading system messages become one system text. If the chat template has no place for definitions of tools, this
    text contains them. `after` is the reply that the messages follow; None at the start of a conversation. `encode`
    replaces `frame.encode` for replies without calls. `examples` are turns after the system text. Raises ChatError if
    the chat template cannot express a message.
    """
    names, opened, encode = _tool_names(after), False, encode or frame.encode
    if after is None:
        count = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
        system, messages = "\n\n".join(m.text for m in messages[:count] if m.text), messages[count:]
        if tools and not frame.tools:
            system, tools = f"{system}\n\n{describe_tools(tools)}".strip(), ()
        opened = not examples and frame.opens_turn(tools, system)
        yield frame.open(system, examples, tools, opened), False
    request: list[ChatMessage] = []
    for message in messages:
        if message.role != "assistant":
            request.append(message)
            continue
        yield _write_request(frame, request, names, opened), False
        reply = frame.write_calls(message.text, message.calls) if message.calls else encode(message.text)
        yield [*reply, frame.stop_id], True
        yield frame.close("stop"), False
        request, names, opened = [], _tool_names(message), False
    if request or not messages or messages[-1].role != "assistant":
        yield _write_request(frame, request, names, opened), False


def _write_request(
    frame: ChatFrame, messages: Sequence[ChatMessage], names: Mapping[str, str], opened: bool
) -> list[int]:
    """Return the ids of tool results and user messages, followed by the head of a reply.

    Consecutive user messages become one turn. `names` maps ids of calls to names of tools. `opened`: the turn's head
    was written already.
    """
    results = [ToolResult(m.call_id, m.text, names.get(m.call_id, m.name)) for m in messages if m.role == "tool"]
    contents = [("\n\n", *(m.parts or (m.text,))) for m in messages if m.role != "tool"]
    content = join_parts([*chain.from_iterable(contents)][1:])
    return frame.answer(results, content) if results else frame.ask(content, opened)


def find_image_spans(
    frame: ChatFrame, ids: Sequence[int], messages: Iterable[ChatMessage], picture: ImageReader
) -> list[MediaSpan]:
    """Return the spans of the messages' images among their ids. Raises ChatError if a template leaves one out."""
    images = [image for message in messages for image in find_images(message.parts)]
    return find_spans(ids, frame.image, images, picture) if images and frame.image else []


def _tool_names(reply: ChatMessage | None) -> dict[str, str]:
    return {call.id: call.name for call in reply.calls} if reply else {}


def describe_tools(tools: Sequence[Definition]) -> str:
    """Return tool definitions as text, for chat templates that have no place for them."""
    lines = [PLAIN_USAGE]
    for tool in tools:
        function = tool["function"]
        kinds = [
            f"{name}: {schema.get('type', 'any') if isinstance(schema, dict) else 'any'}"
            for name, schema in function.get("parameters", {}).get("properties", {}).items()
        ]
        lines.append(f"{function['name']}({', '.join(kinds)}) {function.get('description', '')}".strip())
    return "\n".join(lines)
