"""Messages of the served API: parse them, split them into turns, and encode them as token ids with image spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from agents.chat import ChatFrame
from agents.chat_images import Content, as_text, find_images, find_spans, join_parts
from agents.image_parts import ImageParts
from agents.stream import MediaSpan


class RequestError(Exception):
    """Raised to refuse a request. Has the HTTP status, and the code and parameter name of the API's error format."""

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    def response(self) -> Response:
        """Return the error as an HTTP response in the API's format."""
        kind = "authentication_error" if self.status == 401 else "invalid_request_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return JSONResponse({"error": error}, self.status)


class TextPart(BaseModel):
    """Text part of a message."""

    type: Literal["text"]
    text: str


class ImagePart(BaseModel):
    """Image part of a user's message, as a data URL."""

    type: Literal["image_url"]
    image_url: dict[str, Any] = {}


class ChatMessage(BaseModel):
    """Message of a conversation. Undeclared fields, such as `name`, are ignored."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]]

    @property
    def text(self) -> str:
        """Text of the message, with its text parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> list[ImagePart]:
        """Image parts of the message."""
        return [] if isinstance(self.content, str) else [p for p in self.content if isinstance(p, ImagePart)]

    def parts(self, images: ImageParts) -> Content:
        """Return the message's texts and images in order. Raises RequestError for an invalid image."""
        if isinstance(self.content, str):
            return self.content
        try:
            return join_parts(p.text if isinstance(p, TextPart) else images.read(p.model_dump()) for p in self.content)
        except ValueError as error:
            raise RequestError(f"messages: {error}", code="invalid_image", param="messages") from None


def split_turns(
    messages: Sequence[ChatMessage], images: ImageParts
) -> tuple[str | None, list[tuple[Content, str]], Content]:
    """Split a conversation into its system text or None, past (user, assistant) exchanges, and last user content.

    Consecutive messages of one role are joined. Raises RequestError unless user and assistant alternate and the user is
    last. Raises it also for an invalid image, or one in a message of another role.
    """
    if any(message.images for message in messages if message.role != "user"):
        raise RequestError("only a user's message may have images", param="messages")
    neighbours = groupby(messages, lambda message: "system" if message.role == "developer" else message.role)
    joined = [(role, _join([message.parts(images) for message in group])) for role, group in neighbours]
    system = as_text(joined.pop(0)[1]) if joined[0][0] == "system" else None
    if [role for role, _ in joined] != ["user", "assistant"] * (len(joined) // 2) + ["user"]:
        raise RequestError(
            "after an optional system message, user and assistant messages must alternate, and the last is a user's",
            param="messages",
        )
    contents = [content for _, content in joined]
    return system, list(zip(contents[:-1:2], map(as_text, contents[1::2]), strict=True)), contents[-1]


def _join(contents: Sequence[Content]) -> Content:
    """Join contents, with an empty line between them."""
    parts = [("\n\n", *([content] if isinstance(content, str) else content)) for content in contents]
    return join_parts([*chain.from_iterable(parts)][1:])


def encode_conversation(
    frame: ChatFrame,
    system: str,
    examples: Sequence[tuple[str, str]],
    exchanges: Sequence[tuple[Content, str]],
    last: Content,
    pictures: Mapping[str, bytes],
) -> tuple[list[int], list[MediaSpan]]:
    """Encode a conversation up to the start of the reply. Returns its token ids and its image spans.

    `pictures` has the images' bytes by hash. With images, the conversation is encoded turn by turn, as in a match;
    otherwise past exchanges follow `examples` in the opening.
    """
    images = [image for content in (*(seen for seen, _ in exchanges), last) for image in find_images(content)]
    if not images or frame.image is None:
        past = [*examples, *((as_text(seen), said) for seen, said in exchanges)]
        return [*frame.open(system, past), *frame.ask(as_text(last))], []
    ids = frame.open(system, examples)
    for seen, said in exchanges:
        ids += [*frame.ask(seen), *frame.encode(said), frame.stop_id, *frame.close("stop")]
    ids += frame.ask(last)
    return ids, find_spans(ids, frame.image, images, pictures.__getitem__)
