"""Parse chat completions of servers: the reply's text, finish reason and usage.

Response bodies are not trusted. A body without a text to act by raises UnusableReply, even if it is well formed, such
as a thought, a refusal, a tool call or filtered text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.reply import to_one_line

MAX_PLAUSIBLE_TOKENS = 10_000_000
"""Maximum plausible tokens of one call; a larger usage is ignored."""
TEXT_PARTS = ("text", "output_text")
CUT_OFF = ("content_filter", "error", "abort")
"""Finish reasons of replies that were ended by the server, not by the model."""


class UnusableReply(Exception):
    """Raised for a server's answer without a usable reply.

    `final`: a retry would not help. `reseed`: a retry needs another seed. `wait`: seconds to wait before a retry.
    """

    def __init__(self, reason: str, *, final: bool = False, reseed: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.final, self.reseed, self.wait = final, reseed, wait


@dataclass(frozen=True)
class Answer:
    """A reply's text with its finish reason and its number of completion tokens."""

    text: str
    finish: Literal["stop", "length"]
    tokens: int


class Usage(BaseModel):
    """Token counts of one call as reported by the server; implausible counts are validation errors."""

    model_config = ConfigDict(strict=True)

    prompt_tokens: Annotated[int, Field(ge=0, le=MAX_PLAUSIBLE_TOKENS)]
    completion_tokens: Annotated[int, Field(ge=0, le=MAX_PLAUSIBLE_TOKENS)]


class _Part(BaseModel):
    """Part of a message's content; only parts of type text are used."""

    model_config = ConfigDict(strict=True)

    type: str
    text: str | None = None


class _Message(BaseModel):
    """Message of a server's choice; other fields are ignored."""

    model_config = ConfigDict(strict=True)

    content: str | list[_Part] | None = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def text(self) -> str:
        """Text of the message, with invalid characters replaced; "" if there is none."""
        parts = self.content if isinstance(self.content, list) else []
        joined = "".join(part.text or "" for part in parts if part.type in TEXT_PARTS)
        return (self.content if isinstance(self.content, str) else joined).encode("utf-8", "replace").decode("utf-8")


class Choice(BaseModel):
    """First choice of a server's chat completion."""

    model_config = ConfigDict(strict=True)

    message: _Message
    finish_reason: str | None = None

    @property
    def finish(self) -> Literal["stop", "length"]:
        """`length` if the token limit cut the text, else `stop`."""
        return "length" if self.finish_reason == "length" else "stop"

    def require_text(self, limit: int) -> str:
        """Return the reply's text. Raises UnusableReply, with the reason, if there is none or the server cut it off.

        `limit` is the request's token limit, for the error message.
        """
        text, message, is_truncated = self.message.text, self.message, self.finish_reason == "length"
        if to_one_line(text, 1) and self.finish_reason not in CUT_OFF:
            return text
        thought = message.reasoning_content or message.reasoning
        if self.finish_reason in CUT_OFF:
            reason = f"the server cut it off (finish_reason {self.finish_reason})"
        elif message.refusal:
            reason = f"the model refuses ({message.refusal})"
        elif message.tool_calls or message.function_call:
            reason = "it is a call of a tool, and none was offered"
        elif is_truncated:
            cause = "its thought took" if thought else "thinking may have taken"
            reason = f"{cause} all {limit} tokens: raise the role's sampling.max_tokens, or have the server think less"
        else:
            reason = "there is a thought (reasoning_content) alone" if thought else "it is empty"
        # Another sample may have a text. But a thought that was too long usually is so again, and costs all its tokens.
        raise UnusableReply(f"the reply has no text: {reason}", final=is_truncated, reseed=True)


def read_completion(body: bytes) -> tuple[Choice, Usage | None]:
    """Parse a chat completion's body: return its first choice, and its token usage (None if missing or implausible).

    Raises UnusableReply if the body is not a chat completion.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise UnusableReply("the reply is not JSON") from None
    choices = data.get("choices") if isinstance(data, dict) else None
    try:
        choice = Choice.model_validate(choices[0] if isinstance(choices, list) and choices else None)
    except ValidationError:
        raise UnusableReply(_find_error(data) or "the reply is not a chat completion") from None
    try:
        return choice, Usage.model_validate(data.get("usage"))
    except ValidationError:
        return choice, None


def _find_error(data: Any) -> str:
    """Return a message with the error that some servers send with status 200, or ""."""
    error = data.get("error") if isinstance(data, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return f"the server reports an error: {message}" if isinstance(message, str) and message else ""
