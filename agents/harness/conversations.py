"""Conversations of an agent program with a policy, as token streams of one seat in one match.

A request that extends an earlier conversation continues its stream. A request that diverges from all of them (a
rewritten history, a second agent) opens a new stream, which repeats the ids of the longest common prefix as context. So
every sampled token is recorded once, in its true context, whatever the program does with the texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agents.chat import ChatFrame
from agents.chat_images import shift_spans
from agents.chat_messages import ChatMessage, RequestError
from agents.chat_writing import find_image_spans, write_chat
from agents.engines.base import Completion
from agents.errors import ChatError
from agents.harness.request import AgentRequest
from agents.stream import MediaSpan, Stream
from agents.tool_values import Definition


class Mark(NamedTuple):
    """Position after a policy's reply: the number of messages and of ids so far, and the reply's finish reason."""

    messages: int
    ids: int
    finish: Literal["stop", "length"]


@dataclass(eq=False)
class Conversation:
    """Messages and token stream of a conversation, which end with the policy's latest reply."""

    key: str
    """Name of the stream in the engine."""
    tools: str
    """Definitions of the tools as JSON."""
    messages: list[ChatMessage] = field(default_factory=list)
    stream: Stream = field(default_factory=Stream)
    marks: list[Mark] = field(default_factory=list)
    first_turn: int = -1
    """Turn of the first reply."""
    is_busy: bool = False
    """Whether a reply is being sampled."""


@dataclass(frozen=True)
class Continuation:
    """Request assigned to a conversation, with the ids that it adds to the stream before the reply."""

    conversation: Conversation
    request: AgentRequest
    new_ids: tuple[int, ...]
    new_media: tuple[MediaSpan, ...] = ()
    """Images among the new ids."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The full context of the reply."""
        return (*self.conversation.stream.ids, *self.new_ids)

    @property
    def media(self) -> tuple[MediaSpan, ...]:
        """Images of the full context."""
        stream = self.conversation.stream
        return (*stream.media, *shift_spans(self.new_media, len(stream)))


class Conversations:
    """Conversations of one seat in one match, one token stream each."""

    def __init__(self, frame: ChatFrame, key: str) -> None:
        """Start without conversations. `frame` is the policy's chat frame, `key` the prefix of the streams' names."""
        self.frame, self.key = frame, key
        self.all: list[Conversation] = []
        self._conversation_count = 0

    @property
    def streams(self) -> list[Stream]:
        """The streams with a reply, in the order of their first turns."""
        return [conversation.stream for conversation in sorted(self.all, key=lambda entry: entry.first_turn)]

    def record(self, continuation: Continuation, reply: ChatMessage, completion: Completion, turn: int) -> None:
        """Append the ids of an assigned request, and of the reply sampled in this turn, to its conversation."""
        conversation = continuation.conversation
        if not conversation.marks:
            self.all.append(conversation)
            conversation.first_turn = turn
        stream = conversation.stream
        stream.observe(continuation.new_ids, continuation.new_media)
        stream.append_sampled(completion.ids, completion.logprobs, turn, completion.entropy)
        conversation.messages = [*continuation.request.messages, reply]
        conversation.marks.append(Mark(len(conversation.messages), len(stream), completion.finish))

    def place(self, request: AgentRequest) -> tuple[Continuation, str]:
        """Assign a request to the conversation that it extends, or to a new one.

        Returns it with its conversation, and the reason for opening a new conversation: "" if the request extends one,
        or is the first. Raises RequestError if the chat template cannot express a message.
        """
        tools = json.dumps(list(request.tools), sort_keys=True)
        try:
            origin, mark = self._find_origin(request.messages, tools)
            if origin and mark:
                reply, rest = request.messages[mark.messages - 1], request.messages[mark.messages :]
                new = self.frame.close(mark.finish) + self._encode(rest, after=reply)
                media = find_image_spans(self.frame, new, rest, request.pictures.__getitem__)
                if mark is origin.marks[-1] and not origin.is_busy:
                    return Continuation(origin, request, tuple(new), tuple(media)), ""
                before = origin.stream.before(mark.ids)
                new, media = before.ids + new, before.media + shift_spans(media, mark.ids)
            else:
                new = self._encode(request.messages, request.tools)
                media = find_image_spans(self.frame, new, request.messages, request.pictures.__getitem__)
        except ChatError as error:
            raise RequestError(str(error), param="messages") from None
        reason = self._explain_divergence(request.messages, tools)
        self._conversation_count += 1
        return Continuation(
            Conversation(f"{self.key}/{self._conversation_count}", tools), request, tuple(new), tuple(media)
        ), reason

    def _find_origin(self, messages: Sequence[ChatMessage], tools: str) -> tuple[Conversation | None, Mark | None]:
        """Return the conversation with the longest common prefix that ends in a reply, and the mark of this reply."""
        best: tuple[Conversation | None, Mark | None] = None, None
        for conversation in self.all:
            common = _count_common(conversation.messages, messages) if conversation.tools == tools else 0
            marks = [mark for mark in conversation.marks if mark.messages <= common and mark.messages < len(messages)]
            if marks and messages[marks[-1].messages].role != "assistant":
                is_last, length = marks[-1] is _last_mark(conversation), marks[-1].messages
                if best[1] is None or (length, is_last) > (best[1].messages, best[1] is _last_mark(best[0])):
                    best = conversation, marks[-1]
        return best

    def _explain_divergence(self, messages: Sequence[ChatMessage], tools: str) -> str:
        """Describe how the messages differ from the most similar conversation; "" if there is none."""
        if not self.all:
            return ""
        nearest = max(self.all, key=lambda conversation: _count_common(conversation.messages, messages))
        at = _count_common(nearest.messages, messages)
        if at == 0 or (at == 1 and messages[0].role == "system"):
            return "begins another conversation"
        if nearest.tools != tools:
            return "changes the tools' definitions"
        if at >= len(nearest.messages) or nearest.is_busy:
            return "continues a conversation twice"
        if at == len(messages) or messages[at].role != nearest.messages[at].role:
            return "drops or inserts messages"
        return f"rewrites the {_describe_role(messages[at].role)}"

    # -- ids -------------------------------------------------------------------------------------------------------

    def _encode(
        self, messages: Sequence[ChatMessage], tools: Sequence[Definition] = (), after: ChatMessage | None = None
    ) -> list[int]:
        """Return the ids of messages, up to and including the head of the next reply; see `write_chat`."""
        return [token for ids, _ in write_chat(self.frame, messages, tools, after) for token in ids]


def describe_drift(frame: ChatFrame, request: AgentRequest) -> str:
    """Describe how a continued conversation's stream differs from the chat template's rendering; "" if it does not.

    The stream keeps the sampled ids. A server that renders the whole chat for each request would show the policy a
    different context.
    """
    replies = [message for message in request.messages if message.role == "assistant"]
    parts = frame.tools
    if request.tools and parts is None:
        return "has no tools: definitions are part of the system text, and results are users' turns"
    if any(message.role == "system" for message in request.messages[1:] if replies):
        return "would print a system message within the conversation as a turn of its own: it is part of the user's"
    if any("</think>" in reply.text for reply in replies) and frame.rewrites_thoughts:
        return "drops the thoughts of earlier replies, which the streams keep"
    calls = [reply for reply in replies if reply.calls]
    if parts is None or not calls:
        return ""
    if parts.rewrites:
        return "moves definitions or changes earlier turns, which the streams keep"
    if not parts.exact:
        return "prints calls in a form other than the one in which they are read"
    if not parts.several and any(len(reply.calls) > 1 for reply in calls):
        return "cannot print several calls of one reply, which the streams keep"
    return ""


def _count_common(one: Sequence[ChatMessage], other: Sequence[ChatMessage]) -> int:
    """Return the length of the common prefix of two lists of messages."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (first, second) in enumerate(pairs) if first != second), min(len(one), len(other)))


def _last_mark(conversation: Conversation | None) -> Mark | None:
    return conversation.marks[-1] if conversation and not conversation.is_busy else None


def _describe_role(role: str) -> str:
    return {"assistant": "assistant's message", "tool": "tool's result", "user": "user's message"}.get(
        role, "system text"
    )
