"""Schema and validation of chat completion requests, as in OpenAI's API."""

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.chat_messages import COMMON_NEUTRAL, ChatMessage, RequestError, parse_message
from agents.image_parts import ImageParts

MAX_INT = 2**31 - 1
"""Maximum integer in a request, because engines use 32 bits."""
Count = Annotated[int, Field(ge=1, le=MAX_INT)]
Stop = Annotated[str, Field(max_length=256)]


class ChatRequest(BaseModel):
    """Request for a chat completion.

    Undeclared fields are ignored, except those in `NEUTRAL`: the service accepts them only with the values listed
    there.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str
    messages: Annotated[list[Any], Field(min_length=1)]
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_INT)] | None = None
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None

    @property
    def stops(self) -> list[str]:
        """Non-empty stop texts. A reply ends before the first one that it would contain."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in stops if text]


NEUTRAL = COMMON_NEUTRAL | {
    "continue_final_message": (None, False),
    "function_call": (None, "none"),
    "ignore_eos": (None, False),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "repetition_penalty": (None, 1),
    "tools": (None, []),
}
"""Unsupported parameters, each with the values that are accepted because they have no effect."""


def parse_request(body: bytes) -> ChatRequest:
    """Parse a request's body, except its messages. Raises RequestError if it is invalid."""
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise RequestError(f"{field or 'body'}: {first['msg']}", param=field or None) from None


def parse_messages(entries: Sequence[Any], images: ImageParts | None) -> list[ChatMessage]:
    """Parse a request's messages, and join consecutive ones of the assistant.

    `images` reads images; without it they are refused. Raises RequestError for a malformed message, and unless user and
    assistant alternate after optional system messages, the user is last and no message calls tools.
    """
    parsed = [parse_message(entry, f"messages[{i}]", images) for i, entry in enumerate(entries)]
    messages, roles = list[ChatMessage](), list[str]()
    for role, group in groupby(parsed, lambda message: message.role):
        roles.append(role)
        same = [*group]
        is_reply = role == "assistant"
        messages += [ChatMessage(role, "\n\n".join(message.text for message in same))] if is_reply else same
    turns = roles[roles[0] == "system" :]
    if turns != ["user", "assistant"] * (len(turns) // 2) + ["user"] or any(message.calls for message in parsed):
        raise RequestError(
            "after an optional system message, user and assistant messages must alternate, and the last is a user's",
            param="messages",
        )
    return messages
