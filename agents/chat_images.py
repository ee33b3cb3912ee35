"""Images in a chat: derive their markup from the chat template, and find their placeholders among a prompt's ids."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from agents.chat_parts import USERS, TemplateParts
from agents.chat_template import CLOCK, Renderings, TemplateRefusal, time_variables
from agents.errors import ChatError
from agents.stream import ImageReader, MediaSpan
from games.contracts import ContentPart, Image
from games.pictures import check_picture

Content = str | Sequence[ContentPart]
"""Text of a turn, or its texts and images in order."""


class Fit(NamedTuple):
    """Size of an image in a context."""

    tokens: int
    """Number of placeholder tokens."""
    size: tuple[int, int] | None
    """Height and width in pixels to which the image is scaled; None if the model scales all images to one size."""


class ImageToken(NamedTuple):
    """Placeholder of images in a model's contexts."""

    id: int
    """Id of the placeholder token."""
    tokens: int
    """Number of placeholder tokens per image, without `fit`."""
    fit: Callable[[int, int], Fit] | None = None
    """Function that returns the `Fit` for an image's height and width; None if all images have `tokens` tokens.

    Raises ValueError for an image that the model cannot read.
    """
    mark: str = ""
    """Text that the chat template writes for an image; "" for that of the placeholder token."""
    edges: tuple[str, str] | None = None
    """Texts that the processor writes before and after the placeholders; None for `FRAME_TOKENS`, if they exist."""

    def fit_image(self, image: Image) -> Fit:
        """Return an image's number of tokens and scaled size. Raises ChatError, with its hash, if it does not fit."""
        if self.fit is None:
            return Fit(self.tokens, None)
        try:
            return self.fit(image.height, image.width)
        except ValueError as error:
            raise ChatError(f"image {image.hash}: {error}") from None


class ImageMarkup(NamedTuple):
    """Texts that a chat template and the image processor put around an image's placeholders."""

    before: str
    after: str
    user_head: str
    """Head of a user turn that begins with an image."""
    trims: bool = False
    """Whether the template strips every text of a turn with an image, not only the turn's ends."""


class _Turn(NamedTuple):
    """User turn to render with a chat template: `text` (left out if it is ""), an image, and another text."""

    text: str

    def variables(self) -> dict[str, Any]:
        parts = [{"type": "text", "text": self.text}] if self.text else []
        content = [*parts, {"type": "image"}, {"type": "text", "text": USERS[1]}]
        messages = [{"role": "user", "content": content}]
        return {"messages": messages, "add_generation_prompt": True, **time_variables(CLOCK)}


INSIDE, FIRST, SPACED = _Turn(USERS[0]), _Turn(""), _Turn(f"{USERS[0]}  ")
"""Turns with the image between texts, with the image first, and with blanks between text and image."""
FRAME_TOKENS = ("<fake_token_around_image>", "<global-img>")
"""Tokens that the processors of Idefics3 and SmolVLM put around an untiled image, if the vocabulary has them."""


def derive_markup(tokenizer: Any, parts: TemplateParts, image: ImageToken) -> ImageMarkup:
    """Return the texts that a tokenizer's chat template and the family's processor put around an image.

    If the template shows no images, they are the processor's texts alone.
    """
    framed = set(FRAME_TOKENS) <= set(tokenizer.get_vocab())
    left, right = image.edges or (("".join(FRAME_TOKENS), FRAME_TOKENS[0]) if framed else ("", ""))
    token = image.mark or tokenizer.convert_ids_to_tokens(image.id)
    rendered = Renderings(tokenizer, (INSIDE, FIRST, SPACED))
    try:
        inside = rendered.text(INSIDE).split(USERS[0])[-1].split(USERS[1])[0]
        head = rendered.text(FIRST).split(inside)[0].removeprefix(parts.default)
    except (TemplateRefusal, ValueError):
        inside, head = "", ""
    if inside.count(token) != 1:
        return ImageMarkup(left, right, parts.user_head)
    before, after = inside.split(token)
    return ImageMarkup(before + left, right + after, head, f"{USERS[0]}  " not in rendered.text(SPACED))


def prepend_text(text: str, content: Content) -> Content:
    """Return a content with a text before it."""
    if isinstance(content, str):
        return text + content
    return (text + content[0], *content[1:]) if isinstance(content[0], str) else (text, *content)


def prepend_images(images: Sequence[Image], content: Content) -> Content:
    """Return a content with images before it."""
    if not images:
        return content
    return (*images, *(([content] if content else []) if isinstance(content, str) else content))


def strip_content(content: Content, each_text: bool) -> Content:
    """Strip blanks from the ends of a content or, if `each_text`, from the ends of each of its texts."""
    if isinstance(content, str):
        return content.strip()
    parts = list(content)
    for place, part in enumerate(parts):
        if isinstance(part, str):
            part = part.lstrip() if each_text or place == 0 else part
            parts[place] = part.rstrip() if each_text or place == len(parts) - 1 else part
    return parts


def as_text(content: Content) -> str:
    """Return a content as text, with a placeholder for each image."""
    return "".join(part if isinstance(part, str) else part.text for part in content)


def join_parts(parts: Iterable[ContentPart]) -> Content:
    """Join adjacent texts among texts and images; return a text if there are no images."""
    runs = (("".join(map(str, run)),) if is_text else run for is_text, run in groupby(parts, _is_text))
    joined = tuple(part for run in runs for part in run if part)
    return as_text(joined) if all(map(_is_text, joined)) else joined


def _is_text(part: ContentPart) -> bool:
    return isinstance(part, str)


def find_images(content: Content) -> list[Image]:
    """Return the images of a content, in order."""
    return [] if isinstance(content, str) else [part for part in content if isinstance(part, Image)]


def keep_newest(contents: Sequence[Content], keep: int) -> list[Content]:
    """Replace all images except the newest `keep` by placeholder texts, in contents sorted from old to new.

    Unchanged contents are the same objects.
    """
    replaced: list[Content] = []
    for content in reversed(contents):
        count = len(find_images(content))
        replaced.append(content if count <= keep else _replace_first_images(content, count - keep))
        keep = max(0, keep - count)
    return replaced[::-1]


def _replace_first_images(content: Content, count: int) -> Content:
    """Replace the first `count` images of a content by placeholder texts, and join these with adjacent texts."""
    parts: list[ContentPart] = []
    for part in content:
        if isinstance(part, Image) and count:
            part, count = part.text, count - 1
        if not (isinstance(part, str) and parts and isinstance(before := parts[-1], str)):
            parts.append(part)
            continue
        has_blank = before[-1:].isspace() or part[:1].isspace()
        parts[-1] = before + part if has_blank else f"{before} {part}"
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else tuple(parts)


def find_spans(ids: Sequence[int], token: ImageToken, images: Sequence[Image], picture: ImageReader) -> list[MediaSpan]:
    """Return the spans of the images, whose placeholders are among `ids` in the same order.

    Raises ChatError if the number of placeholders is wrong or an image does not match its hash, ValueError if its file
    cannot be read or has another type or size, and KeyError if `picture` does not have it.
    """
    spans, end = list[MediaSpan](), 0
    for image in images:
        data, fit = picture(image.hash), token.fit_image(image)
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


def shift_spans(media: Sequence[MediaSpan], tokens: int) -> list[MediaSpan]:
    """Return the spans shifted by a number of tokens to later positions."""
    return [replace(span, start=span.start + tokens) for span in media]
