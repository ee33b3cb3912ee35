"""Cut a chat template into the texts around contents, by rendering marker words in their place."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from agents.chat_template import CLOCK, Chat, Renderings, TemplateRefusal
from agents.errors import ChatError


class TemplateParts(NamedTuple):
    """Texts that a chat template puts around a conversation's contents, and its treatment of system text and blanks."""

    system_head: str
    system_tail: str
    user_head: str
    reply_head: str
    """Text between a user's text and a past reply."""
    prompt: str
    """Text between the last user's text and the reply to sample."""
    reply_tail: str
    system: Literal["turn", "inline", "none"]
    """Place of the system text: its own turn, part of the first user turn, or not supported by the template."""
    trims: bool
    """Whether the template strips contents."""
    user_tail: str
    """Text after the last user's text if no reply is requested."""
    default: str
    """Text before the first user's head in a conversation without a system text."""


SYSTEM, USERS, REPLIES = "sYs7m", ("uSr0q", "uSr1q", "uSr2q"), ("rPl0y", "rPl1y")
"""Marker words, which no template contains, in place of contents."""
ACKNOWLEDGED = "Understood."
"""Reply that ends a user turn with nothing but the system text or tool definitions."""
BRIDGE = "\n\n"
"""Text between the system text and the first user text, for templates without a system role."""
PROBE = ("Be brief.", "Hello?", "Take 1, please.", "I want 2.", "No deal: 3 or nothing!", "So?")
"""Ordinary texts, with which the derived parts are verified."""

TURNS = (USERS[0], REPLIES[0], USERS[1], REPLIES[1], USERS[2])
MARKED, NO_SYSTEM = Chat((SYSTEM, *TURNS), True), Chat(TURNS, False)
ENDED, BLANK = Chat(TURNS[:2], False, prompt=False), Chat((f"\n\n{USERS[0]}\n\n",), False)
THINKING = tuple(f"<think>\nHm.\n</think>\n\n{text}" if place in (2, 4) else text for place, text in enumerate(PROBE))


def _inline_system(texts: Sequence[str]) -> Chat:
    return Chat((texts[0] + BRIDGE + texts[1], *texts[2:]), False)


PROBED, PROBED_INLINE = Chat(PROBE, True), _inline_system(PROBE)
THOUGHTFUL, THOUGHTFUL_INLINE = Chat(THINKING, True), _inline_system(THINKING)
ASKED = Chat(USERS[:1], False, prompt=False)
AFTER = CLOCK.replace(year=2031, month=11, day=3, hour=17, minute=42, second=9)
LATER, LATER_NO_SYSTEM = MARKED._replace(clock=AFTER), NO_SYSTEM._replace(clock=AFTER)
CHATS = (
    MARKED, NO_SYSTEM, ENDED, BLANK, PROBED, PROBED_INLINE, THOUGHTFUL, THOUGHTFUL_INLINE, ASKED, LATER, LATER_NO_SYSTEM
)  # fmt: skip


def rewrites_thoughts(parts: TemplateParts, rendered: Renderings) -> bool:
    """Return True if a template changes or drops thoughts in earlier replies, or refuses them."""
    try:
        text = rendered.text(THOUGHTFUL_INLINE if parts.system == "none" else THOUGHTFUL)
    except TemplateRefusal:
        return True
    return text != compose(parts, THINKING)


def derive_parts(tokenizer: Any, has_images: bool = False) -> tuple[Renderings, TemplateParts]:
    """Derive the parts of a tokenizer's chat template; return the renderings they are derived from, and the parts.

    `has_images`: the model has vision, so that its template may accept only lists of parts as contents. Raises
    ChatError if the template refuses plain turns or changes texts depending on their position.
    """
    rendered = Renderings(tokenizer, CHATS)
    try:
        return rendered, _verify_parts(rendered)
    except ChatError:
        if not has_images:
            raise
    rendered = Renderings(tokenizer, CHATS, listed=True)
    return rendered, _verify_parts(rendered)


def _verify_parts(rendered: Renderings) -> TemplateParts:
    """Derive the parts by rendering marker words, and verify them by rendering other words."""
    try:
        parts = _split_parts(rendered)
        if compose(parts, PROBE) == rendered.text(PROBED_INLINE if parts.system == "none" else PROBED):
            return parts
    except TemplateRefusal as error:
        raise ChatError(f"the chat template refuses plain turns ({error}); set a plainer one") from error
    raise ChatError("the chat template changes texts depending on their position; set a plainer chat_template")


def _split_parts(rendered: Renderings) -> TemplateParts:
    system: Literal["turn", "inline", "none"] = "inline"
    try:
        pieces = split_at(rendered.text(MARKED), MARKED.texts)
    except (TemplateRefusal, ChatError):
        system = "none"
        pieces = split_at(rendered.text(NO_SYSTEM), TURNS)
        pieces.insert(1, BRIDGE)
    head, bridge, reply_head, between, *_, prompt = pieces
    # A reply's tail is the text that follows it both in the middle and at the end of a conversation.
    ending = rendered.text(ENDED).split(REPLIES[0])[-1]
    differing = (index for index, pair in enumerate(zip(between, ending, strict=False)) if len(set(pair)) > 1)
    tail = between[: next(differing, min(len(between), len(ending)))]
    user_head = between.removeprefix(tail)
    if system == "inline" and bridge.endswith(user_head):
        system, bridge = "turn", bridge.removesuffix(user_head)
    trims = f"{USERS[0]}\n\n" not in rendered.text(BLANK)
    user_tail = rendered.text(ASKED).split(USERS[0])[-1]
    default = rendered.text(NO_SYSTEM).split(USERS[0])[0].removesuffix(user_head)
    return TemplateParts(
        system_head=head,
        system_tail=bridge,
        user_head=user_head,
        reply_head=reply_head,
        prompt=prompt,
        reply_tail=tail,
        system=system,
        trims=trims,
        user_tail=user_tail,
        default=default,
    )


def split_at(rendered: str, markers: Sequence[str]) -> list[str]:
    """Return the texts before, between and after the markers. Raises ChatError unless each occurs once, in order."""
    pieces, rest = [], rendered
    for marker in markers:
        if rendered.count(marker) != 1 or marker not in rest:
            raise ChatError("the chat template leaves out or moves turns; set a plainer chat_template")
        piece, rest = rest.split(marker)
        pieces.append(piece)
    return [*pieces, rest]


def compose(parts: TemplateParts, texts: Sequence[str]) -> str:
    """Compose system, user, assistant, …, user texts with a chat template's parts, up to the prompt for a reply."""
    head = parts.user_head if parts.system == "turn" else ""
    rendered = parts.system_head + texts[0] + parts.system_tail
    for user, reply in zip(texts[1:-1:2], texts[2:-1:2], strict=True):
        rendered += head + user + parts.reply_head + reply + parts.reply_tail
        head = parts.user_head
    return rendered + head + texts[-1] + parts.prompt
