"""Images in a chat: cut from the chat template how a turn shows an image, and find images among a prompt's ids."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agents.chat_parts import USERS, Parts
from agents.chat_template import CLOCK, Refused, Rendered, time_variables
from agents.errors import ChatError
from agents.stream import MediaSpan, Picture
from games.contracts import ContentPart, Image
from games.pictures import check_picture

Content = str | Sequence[ContentPart]
"""Text of a turn, or its texts and images in order."""


class Fit(NamedTuple):
    """How an image enters a context."""

    tokens: int
    """Number of placeholder tokens."""
    size: tuple[int, int] | None
    """Height and width in pixels to which the image is scaled; None if all images of the model are scaled alike."""


class ImageToken(NamedTuple):
    """Placeholder of an image in a model's contexts: the token's id, and how many of them stand for one image."""

    id: int
    tokens: int
    fit: Callable[[int, int], Fit] | None = None
    """Function from an image's height and width to its `Fit`, in place of `tokens` for all. Raises ValueError."""
    mark: str = ""
    """Text that the chat template writes for an image; "" for the placeholder's own."""
    edges: tuple[str, str] | None = None
    """Texts that the processor writes before and after the placeholders; None for those of Idefics3, if known."""

    def fitted(self, image: Image) -> Fit:
        """Return how an image enters a context. Raises ChatError, with its hash, if the model cannot have it."""
        if self.fit is None:
            return Fit(self.tokens, None)
        try:
            return self.fit(image.height, image.width)
        except ValueError as error:
            raise ChatError(f"image {image.hash}: {error}") from None


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


def cut_images(tokenizer: Any, parts: Parts, image: ImageToken) -> ImageMarkup:
    """Return how a tokenizer's chat template shows an image, with what the family's processor adds.

    If the template shows no images, only the processor's texts stand around the placeholders.
    """
    framed = set(FRAMED) <= set(tokenizer.get_vocab())
    left, right = image.edges or (("".join(FRAMED), FRAMED[0]) if framed else ("", ""))
    token = image.mark or tokenizer.convert_ids_to_tokens(image.id)
    rendered = Rendered(tokenizer, (INSIDE, FIRST))
    try:
        inside = rendered.text(INSIDE).split(USERS[0])[-1].split(USERS[1])[0]
        head = rendered.text(FIRST).split(inside)[0].removeprefix(parts.default)
    except (Refused, ValueError):
        inside, head = "", ""
    if inside.count(token) != 1:
        return ImageMarkup(left, right, parts.user_head)
    before, after = inside.split(token)
    return ImageMarkup(before + left, right + after, head)


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


def images_of(content: Content) -> list[Image]:
    """Return the images of a content, in order."""
    return [] if isinstance(content, str) else [part for part in content if isinstance(part, Image)]


def spans_in(ids: Sequence[int], token: ImageToken, images: Sequence[Image], picture: Picture) -> list[MediaSpan]:
    """Return the spans of the images, whose placeholders stand among `ids` in the same order.

    Raises ChatError if there are not as many placeholders as the images need or an image does not match its hash,
    ValueError if its file cannot be read or is of another type or size, and KeyError if `picture` lacks one.
    """
    spans, end = list[MediaSpan](), 0
    for image in images:
        data, fit = picture(image.hash), token.fitted(image)
        start = next((at for at in range(end, len(ids)) if ids[at] == token.id), len(ids))
        end = start + fit.tokens
        if any(id != token.id for id in ids[start:end]) or end > len(ids):
            raise ChatError(f"a prompt has fewer than {fit.tokens} placeholders for image {image.hash}")
        if hashlib.sha256(data).hexdigest() != image.hash:
            raise ChatError(f"image {image.hash} does not match its bytes")
        check_picture(image, data)
        spans.append(MediaSpan(start, fit.tokens, image.hash, data, fit.size))
    if token.id in ids[end:]:
        raise ChatError(f"a prompt has more placeholders than its {len(images)} images need")
    return spans


def moved(media: Sequence[MediaSpan], by: int) -> list[MediaSpan]:
    """Return the spans at positions that are larger by so many tokens."""
    return [replace(span, start=span.start + by) for span in media]
