"""Schema and validation of chat completion requests, as in OpenAI's API."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request as HttpRequest

from arena.serve.messages import ChatMessage, RequestError

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
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
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


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "continue_final_message": (None, False),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "ignore_eos": (None, False),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "modalities": (None, ["text"]),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}
"""Unsupported parameters, each with the values that are accepted because they have no effect."""


async def read_body(http: HttpRequest, max_bytes: int) -> ChatRequest:
    """Read and validate a request's body. Raises RequestError if it is too large or invalid."""
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > max_bytes:
            raise RequestError(f"the body is larger than {max_bytes >> 20} MB", 413)
    try:
        return ChatRequest.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise RequestError(f"{field or 'body'}: {first['msg']}", param=field or None) from None
