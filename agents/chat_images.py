"""Images in a chat: cut from the chat template how a turn shows an image, and find images among a prompt's ids."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from agents.chat_parts import USERS, Parts
from agents.chat_template import CLOCK, Refused, Rendered, time_variables
from agents.errors import ChatError
from agents.stream import MediaSpan, Picture
from games.contracts import ContentPart, Image

Content = str | Sequence[ContentPart]
"""Text of a turn, or its texts and images in order."""


class ImageToken(NamedTuple):
    """Placeholder of an image in a model's contexts: the token's id, and how many of them stand for one image."""

    id: int
    tokens: int


class ImageMarkup(NamedTuple):
    """Texts that a chat template puts around an image, and before a user's turn that begins with one."""

    before: str
    after: str
    user_head: str


class _Turn(NamedTuple):
    """User turn with an image after a text, or first if the text is "", and with another text after it."""

    text: str

    def variables(self) -> dict[str, Any]:
        parts = [{"type": "text", "text": self.text}] if self.text else []
        content = [*parts, {"type": "image"}, {"type": "text", "text": USERS[1]}]
        messages = [{"role": "user", "content": content}]
        return {"messages": messages, "add_generation_prompt": True, **time_variables(CLOCK)}


INSIDE, FIRST = _Turn(USERS[0]), _Turn("")
FRAMED = ("<fake_token_around_image>", "<global-img>")
"""Tokens with which the processors of Idefics3 and SmolVLM frame a whole image, if the vocabulary has them."""


def cut_images(tokenizer: Any, parts: Parts, token: str) -> ImageMarkup:
    """Return how a tokenizer's chat template shows an image, whose placeholder has the text `token`.

    If the template shows no images, nothing stands around the placeholders.
    """
    edges = ("".join(FRAMED), FRAMED[0]) if set(FRAMED) <= set(tokenizer.get_vocab()) else ("", "")
    rendered = Rendered(tokenizer, (INSIDE, FIRST))
    try:
        inside = rendered.text(INSIDE).split(USERS[0])[-1].split(USERS[1])[0]
        head = rendered.text(FIRST).split(inside)[0].removeprefix(parts.default)
    except (Refused, ValueError):
        inside, head = "", ""
    if inside.count(token) != 1:
        return ImageMarkup(*edges, parts.user_head)
    before, after = inside.split(token)
    return ImageMarkup(before + edges[0], edges[1] + after, head)


def after(text: str, content: Content) -> Content:
    """Return a content with a text before it."""
    if isinstance(content, str):
        return text + content
    return (text + content[0], *content[1:]) if isinstance(content[0], str) else (text, *content)


def after_images(images: Sequence[Image], content: Content) -> Content:
    """Return a content with images before it."""
    if not images:
        return content
    return (*images, *(([content] if content else []) if isinstance(content, str) else content))


def as_text(content: Content) -> str:
    """Return a content as text, with a placeholder for each image."""
    return "".join(part if isinstance(part, str) else part.text for part in content)


def join_parts(parts: Iterable[ContentPart]) -> Content:
    """Return texts and images as a content: adjacent texts joined, a text if there are no images."""
    runs = (("".join(map(str, run)),) if is_text else run for is_text, run in groupby(parts, _is_text))
    joined = tuple(part for run in runs for part in run if part)
    return as_text(joined) if all(map(_is_text, joined)) else joined


def _is_text(part: ContentPart) -> bool:
    return isinstance(part, str)


def images_of(content: Content) -> list[Image]:
    """Return the images of a content, in order."""
    return [] if isinstance(content, str) else [part for part in content if isinstance(part, Image)]


def keep_newest(contents: Sequence[Content], keep: int) -> list[Content]:
    """Return contents, oldest first, with placeholder texts for all images but the newest `keep`.

    Contents that do not change are returned as they are.
    """
    kept: list[Content] = []
    for content in reversed(contents):
        count = len(images_of(content))
        kept.append(content if count <= keep else _without_first(content, count - keep))
        keep = max(0, keep - count)
    return kept[::-1]


def _without_first(content: Content, count: int) -> Content:
    """Return a content with placeholder texts for its first `count` images, joined with the texts beside them."""
    parts: list[ContentPart] = []
    for part in content:
        if isinstance(part, Image) and count:
            part, count = part.text, count - 1
        if not (isinstance(part, str) and parts and isinstance(before := parts[-1], str)):
            parts.append(part)
            continue
        is_apart = before[-1:].isspace() or part[:1].isspace()
        parts[-1] = before + part if is_apart else f"{before} {part}"
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else tuple(parts)


def spans_in(ids: Sequence[int], token: ImageToken, images: Sequence[Image], picture: Picture) -> list[MediaSpan]:
    """Return the spans of the images, whose placeholders stand among `ids` in the same order.

    Raises ChatError if the placeholders are not of as many images, or if an image does not match its hash, and KeyError
    if `picture` lacks one.
    """
    starts = list(_starts(ids, token))
    if len(starts) != len(images):
        raise ChatError(f"a prompt has placeholders of {len(starts)} images, and {len(images)} images")
    spans = []
    for start, image in zip(starts, images, strict=True):
        data = picture(image.hash)
        if hashlib.sha256(data).hexdigest() != image.hash:
            raise ChatError(f"image {image.hash} does not match its bytes")
        spans.append(MediaSpan(start, token.tokens, image.hash, data))
    return spans


def moved(media: Sequence[MediaSpan], by: int) -> list[MediaSpan]:
    """Return the spans at positions that are larger by so many tokens."""
    return [replace(span, start=span.start + by) for span in media]


def _starts(ids: Sequence[int], token: ImageToken) -> Iterator[int]:
    at = 0
    while at < len(ids):
        if ids[at] != token.id:
            at += 1
            continue
        if any(id != token.id for id in ids[at : at + token.tokens]) or at + token.tokens > len(ids):
            raise ChatError(f"an image has fewer than {token.tokens} placeholders")
        yield at
        at += token.tokens
